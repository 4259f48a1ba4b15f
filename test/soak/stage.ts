import { logLevel, type Admin, type Kafka } from 'kafkajs';
import pg from 'pg';
import { DataSource } from 'typeorm';
import { idempotencyMigrations } from 'nestjs-kafka-idempotency/schema';
import { startPostgresProxy, until, type PostgresProxy } from 'nestjs-kafka-idempotency/testing';
import { kafkaClients } from '#src/kafka/kafka-client.js';
import { startProxiedKafka, type ProxiedKafka } from '../services/proxied-kafka.js';
import { RunFolder } from '../services/run-folder.js';
import { startEmbeddedPostgres, type EmbeddedPostgresServer } from '../services/services.js';
import type { Place } from './place.js';
import { CONSUMERS, IMPORT_TOPIC, IDLE_IN_TRANSACTION_MS, OUTPUT_TOPIC, PARTITIONS } from './workload.js';

/** No unique constraint on the effects: a double has to show. */
const TABLES = `
CREATE TABLE effects (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, consumer text NOT NULL, event_id text NOT NULL, key text NOT NULL,
  partition integer NOT NULL, record_offset bigint NOT NULL);
CREATE INDEX effects_event ON effects (event_id);
CREATE TABLE balances (consumer text, key text, amount bigint NOT NULL, PRIMARY KEY (consumer, key))`;

const GROUP = 'soak';
const ADMIN_TRIES = 3;
const ADMIN_PATIENCE_MS = 15_000;

/** The services of a run, the proxies in front of them, and the ways past those for the run itself. */
export class Stage {
  private constructor(
    private readonly runFolder: RunFolder,
    readonly kafka: ProxiedKafka,
    readonly postgres: EmbeddedPostgresServer,
    readonly postgresProxy: PostgresProxy,
    /** Past the proxy. */
    readonly database: pg.Pool,
    private readonly sessionMs: number,
  ) {}

  static async open(sessionMs: number): Promise<Stage> {
    const runFolder = await RunFolder.open();
    try {
      const [kafka, postgres] = await Promise.all([
        startProxiedKafka({ brokers: 3, settings: BROKER_SETTINGS, runFolder }),
        startEmbeddedPostgres({ settings: { idle_in_transaction_session_timeout: IDLE_IN_TRANSACTION_MS }, runFolder }),
      ]);
      const postgresProxy = await startPostgresProxy({ target: postgres.databaseUrl });
      const database = new pg.Pool({ connectionString: postgres.databaseUrl, max: 4 });
      database.on('error', () => undefined); // the server is stopped on purpose; who asks it hears of it
      const stage = new Stage(runFolder, kafka, postgres, postgresProxy, database, sessionMs);
      await Promise.all([stage.#createTopics(), stage.#createTables()]);
      return stage;
    } catch (error) {
      await runFolder.close();
      throw error;
    }
  }

  get group(): string {
    return GROUP;
  }

  /** For the workers: all ways lead by the proxies. */
  get place(): Place {
    const { kafka, postgresProxy, sessionMs } = this;
    return { brokers: kafka.brokers, databaseUrl: postgresProxy.url, group: GROUP, sessionMs };
  }

  /** A client past the proxies. By ours, for kafkajs alone waits for minutes at a broker that takes connections and answers nothing, as a frozen one does. */
  client(clientId: string): Kafka {
    return kafkaClients({
      clientId,
      brokers: this.kafka.kafka.brokers,
      logLevel: logLevel.NOTHING,
      connectionTimeout: 1_000,
      requestTimeout: 3_000,
      retry: { initialRetryTime: 100, maxRetryTime: 1_000, retries: 3 },
    })();
  }

  /** With a fresh admin client: one that lives on asks the leaders of before. */
  async withAdmin<T>(use: (admin: Admin) => Promise<T>): Promise<T> {
    for (let tries = 1; ; tries++) {
      const admin = this.client('soak-admin').admin();
      try {
        return await inTime(admin.connect().then(() => use(admin)));
      } catch (error) {
        if (tries === ADMIN_TRIES) throw error;
      } finally {
        await inTime(admin.disconnect()).catch(() => undefined); // it has done what it was for, or is given up
      }
    }
  }

  /** The group's offsets, 0 where there is none. */
  async committed(): Promise<{ topic: string; partition: number; offset: number }[]> {
    const found = await this.withAdmin((admin) => admin.fetchOffsets({ groupId: GROUP, topics: this.inputs }));
    return found.flatMap(({ topic, partitions }) =>
      partitions.map(({ partition, offset }) => ({ topic, partition, offset: Math.max(0, Number(offset)) })),
    );
  }

  /** What is consumed. */
  get inputs(): string[] {
    return CONSUMERS.map(({ topic }) => topic);
  }

  /** Where each partition ends, by `topic/partition`. */
  async ends(topics: readonly string[] = this.inputs): Promise<Map<string, number>> {
    const ends = new Map<string, number>();
    await this.withAdmin(async (admin) => {
      for (const topic of topics)
        for (const { partition, high } of await admin.fetchTopicOffsets(topic))
          ends.set(`${topic}/${partition}`, Number(high));
    });
    return ends;
  }

  /** All faults are over: brokers and database run, networks are good. */
  async heal(): Promise<void> {
    const { kafka, postgres, postgresProxy } = this;
    postgres.resume();
    kafka.kafka.resume();
    await Promise.all([postgresProxy.heal(), ...kafka.proxies.map((proxy) => proxy.heal())]);
    await Promise.all([postgres.start(), kafka.kafka.start()]);
  }

  /** The services first: with them the connections through the proxies end. */
  async close(): Promise<void> {
    await this.database.end().catch(() => undefined); // its server may be down
    await this.runFolder.close();
    await Promise.all([this.postgresProxy.close(), ...this.kafka.proxies.map((proxy) => proxy.close())]);
  }

  async #createTopics(): Promise<void> {
    const topics = [...this.inputs, OUTPUT_TOPIC, IMPORT_TOPIC];
    await this.withAdmin(async (admin) => {
      await admin.createTopics({
        topics: topics.map((topic) => ({
          topic,
          numPartitions: PARTITIONS,
          replicationFactor: 3,
          configEntries: [{ name: 'min.insync.replicas', value: '2' }],
        })),
        waitForLeaders: true,
      });
    });
    await until(async () => (await this.ends(topics)).size === topics.length * PARTITIONS, { what: 'the topics' });
  }

  async #createTables(): Promise<void> {
    const owner = new DataSource({
      type: 'postgres',
      url: this.postgres.databaseUrl,
      migrations: [...idempotencyMigrations()],
    });
    await owner.initialize();
    await owner.runMigrations();
    await owner.query(TABLES);
    await owner.destroy();
  }
}

/** A leader that is not the first of its replicas gives way within seconds: so leaders move, after a kill by themselves and else by a new order. */
const BROKER_SETTINGS = {
  'auto.leader.rebalance.enable': 'true',
  'leader.imbalance.check.interval.seconds': 2,
  'leader.imbalance.per.broker.percentage': 0,
};

/** kafkajs may wait for ever for a broker that went away at the wrong moment. */
async function inTime<T>(work: Promise<T>): Promise<T> {
  let timer: NodeJS.Timeout | undefined;
  const late = new Promise<never>((_, reject) => {
    timer = setTimeout(
      () => reject(new Error(`Kafka did not answer within ${ADMIN_PATIENCE_MS} ms.`)),
      ADMIN_PATIENCE_MS,
    );
  });
  return Promise.race([work, late]).finally(() => clearTimeout(timer));
}
