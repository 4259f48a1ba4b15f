import { randomUUID } from 'node:crypto';
import { Kafka, logLevel, Partitioners, type Admin, type Message, type Producer } from 'kafkajs';
import { DataSource } from 'typeorm';
import { idempotencyEntities, idempotencyMigrations } from 'nestjs-kafka-idempotency/schema';
import { until } from 'nestjs-kafka-idempotency/testing';

export interface TopicSettings {
  readonly replicas?: number;
  /** Topic settings of Kafka, such as `{ 'cleanup.policy': 'compact' }`. */
  readonly config?: Readonly<Record<string, string>>;
}

/** What a test needs of the two services, all its own: topics, a group, a database schema with our table and an `effects` table. */
export class World {
  readonly schema: string;
  readonly group: string;
  readonly #topics: string[] = [];

  private constructor(
    readonly brokers: string[],
    readonly databaseUrl: string,
    readonly kafka: Kafka,
    readonly admin: Admin,
    readonly producer: Producer,
    readonly db: DataSource,
    name: string,
  ) {
    this.schema = name;
    this.group = name;
  }

  /** `services`: another pair than the one of the whole run, for tests that stop or kill theirs. */
  static async create(services: { brokers?: string[]; databaseUrl?: string } = {}): Promise<World> {
    const brokers = services.brokers ?? required('KAFKA_BROKERS').split(',');
    const databaseUrl = services.databaseUrl ?? required('DATABASE_URL');
    const name = `t_${randomUUID().replaceAll('-', '').slice(0, 16)}`;
    const kafka = new Kafka({ clientId: `${name}-test`, brokers, logLevel: logLevel.NOTHING });
    const admin = kafka.admin();
    // Idempotent, so that a send retried on a busy machine does not leave a record twice.
    const producer = kafka.producer({
      createPartitioner: Partitioners.DefaultPartitioner,
      idempotent: true,
      maxInFlightRequests: 1,
    });
    await Promise.all([admin.connect(), producer.connect()]);
    const bootstrap = await new DataSource({ type: 'postgres', url: databaseUrl }).initialize();
    await bootstrap.query(`CREATE SCHEMA ${name}`);
    await bootstrap.destroy();
    const db = await new DataSource({
      type: 'postgres',
      url: databaseUrl,
      schema: name,
      extra: { options: `-c search_path=${name}` },
      entities: [...idempotencyEntities],
      migrations: [...idempotencyMigrations({ schema: name })],
    }).initialize();
    await db.runMigrations();
    // No unique constraint: a double effect has to show.
    await db.query(
      `CREATE TABLE effects (id bigint GENERATED ALWAYS AS IDENTITY, event_id text NOT NULL, handler text NOT NULL DEFAULT '', key text, seq integer)`,
    );
    return new World(brokers, databaseUrl, kafka, admin, producer, db, name);
  }

  async topic(partitions = 1, suffix = '', settings?: TopicSettings): Promise<string> {
    const topic = this.topicName(suffix);
    await this.createTopic(topic, partitions, settings);
    return topic;
  }

  /** A name of this test's own, for a topic that does not exist yet. */
  topicName(suffix = ''): string {
    return `${this.group}.${this.#topics.length}${suffix}`;
  }

  async createTopic(topic: string, partitions = 1, { replicas = 1, config = {} }: TopicSettings = {}): Promise<void> {
    const configEntries = Object.entries(config).map(([name, value]) => ({ name, value }));
    await this.admin.createTopics({
      topics: [{ topic, numPartitions: partitions, replicationFactor: replicas, configEntries }],
      waitForLeaders: false,
    });
    // A broker answers "does not host this topic-partition" until it has heard of the topic itself.
    await until(() => this.#hasLeaders(topic), { what: `leaders for ${topic}` });
    this.#topics.push(topic);
  }

  async #hasLeaders(topic: string): Promise<boolean> {
    const metadata = await this.admin.fetchTopicMetadata({ topics: [topic] }).catch(() => undefined);
    return metadata?.topics[0]?.partitions.every(({ leader }) => leader >= 0) ?? false;
  }

  /** Sends events `{ id, ...payload }` with the header `event-id`. */
  async send(topic: string, ...events: (Partial<Message> & { id: string; payload?: unknown })[]): Promise<void> {
    await this.producer.send({
      topic,
      acks: -1,
      messages: events.map(({ id, payload, headers, ...message }) => ({
        value: JSON.stringify({ id, ...(payload as object | undefined) }),
        ...message,
        headers: { 'event-id': id, ...headers },
      })),
    });
  }

  async sendRaw(topic: string, ...messages: Message[]): Promise<void> {
    await this.producer.send({ topic, acks: -1, messages });
  }

  /** Event ids of the effects, in the order they were written. */
  async effects(handler?: string): Promise<string[]> {
    const rows = await this.db.query<{ event_id: string }[]>(
      `SELECT event_id FROM effects WHERE $1::text IS NULL OR handler = $1 ORDER BY id`,
      [handler ?? null],
    );
    return rows.map(({ event_id }) => event_id);
  }

  /** Rows of processed_events as `consumer/event id`, sorted. */
  async processed(): Promise<string[]> {
    const rows = await this.db.query<{ consumer: string; event_id: string }[]>(
      `SELECT consumer, event_id FROM processed_events ORDER BY 1, 2`,
    );
    return rows.map(({ consumer, event_id }) => `${consumer}/${event_id}`);
  }

  /** The group's committed offset, undefined if there is none. */
  async committed(topic: string, partition = 0, group = this.group): Promise<bigint | undefined> {
    const [found] = await this.admin.fetchOffsets({ groupId: group, topics: [topic] });
    const offset = BigInt(found?.partitions.find((one) => one.partition === partition)?.offset ?? '-1');
    return offset < 0n ? undefined : offset;
  }

  async untilCommitted(topic: string, offset: bigint | number, partition = 0, group = this.group): Promise<void> {
    await until(async () => (await this.committed(topic, partition, group)) === BigInt(offset), {
      what: `${topic}[${partition}] committed at ${offset}`,
      timeoutMs: 30_000,
    });
  }

  /** Until the group stands at the end of every partition's log. */
  async untilAtEnd(topic: string, timeoutMs = 30_000): Promise<void> {
    await until(() => this.#isAtEnd(topic), { what: `the group at the end of ${topic}`, timeoutMs, intervalMs: 250 });
  }

  /** By a client of its own: one that lives on asks the leaders of before. */
  async #isAtEnd(topic: string): Promise<boolean> {
    const admin = this.kafka.admin();
    await admin.connect();
    try {
      const ends = await admin.fetchTopicOffsets(topic);
      const [found] = await admin.fetchOffsets({ groupId: this.group, topics: [topic] });
      const committed = new Map(found?.partitions.map(({ partition, offset }) => [partition, offset]));
      return ends.every(({ partition, high }) => committed.get(partition) === high);
    } finally {
      await admin.disconnect();
    }
  }

  async untilEffects(count: number, handler?: string): Promise<string[]> {
    await until(async () => (await this.effects(handler)).length >= count, {
      what: `${count} effects`,
      timeoutMs: 30_000,
    });
    return this.effects(handler);
  }

  async close(): Promise<void> {
    await this.db.query(`DROP SCHEMA IF EXISTS ${this.schema} CASCADE`).catch(() => undefined); // the database may be the one the test killed
    await this.db.destroy();
    await Promise.all([this.admin.disconnect(), this.producer.disconnect()]);
  }
}

function required(name: string): string {
  const value = process.env[name];
  if (value === undefined || value === '')
    throw new Error(
      `${name} is not set. Run the tests with \`npm test\`, which starts the services, or set it to those of \`npm run services\`.`,
    );
  return value;
}
