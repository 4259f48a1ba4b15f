import { randomBytes } from 'node:crypto';
import kafkajs, { type Admin, type Kafka } from 'kafkajs';
import { DataSource } from 'typeorm';
import { idempotencyMigrations } from 'nestjs-kafka-idempotency/schema';
import type { Services } from '../../test/services/services.js';
import { until } from 'nestjs-kafka-idempotency/testing';
import { CreatePayments1764288000001 } from '../01-orders/payments/create-payments.migration.js';
import { PARTITIONS } from './events.js';

/** What a broker grants at least when it does not say: Kafka's default. */
const USUAL_LEAST_SESSION_MS = 6_000;

/** For the check of the order: what each row's transaction was, and which transactions it could see. The sample itself knows nothing of them. */
const CHECK_COLUMNS = `
ALTER TABLE payments
  ADD COLUMN written_by xid8 NOT NULL DEFAULT pg_current_xact_id(),
  ADD COLUMN saw pg_snapshot NOT NULL DEFAULT pg_current_snapshot()`;

/** A topic, a group and a schema of one run's own, so that runs side by side do not meet. Services that were there before are left as they were found. */
export class Workspace {
  private constructor(
    readonly name: string,
    private readonly services: Services,
    private readonly admin: Admin,
    readonly database: DataSource,
  ) {}

  static async create(services: Services, kafka: Kafka): Promise<Workspace> {
    const name = `demo_${randomBytes(6).toString('hex')}`;
    const admin = kafka.admin();
    const database = new DataSource({
      type: 'postgres',
      url: services.databaseUrl,
      schema: name,
      extra: { options: `-c search_path=${name}` },
      migrations: [...idempotencyMigrations(), CreatePayments1764288000001],
    });
    const workspace = new Workspace(name, services, admin, database);
    try {
      await Promise.all([admin.connect(), database.initialize()]);
      await Promise.all([workspace.#createTopic(), workspace.#createTables()]);
      return workspace;
    } catch (error) {
      await workspace.close();
      throw error;
    }
  }

  get topic(): string {
    return `${this.name}.orders.created`;
  }
  get group(): string {
    return this.name;
  }
  get schema(): string {
    return this.name;
  }

  /** The shortest session the brokers grant. */
  async leastSessionMs(): Promise<number> {
    const { brokers } = await this.admin.describeCluster();
    const broker = String(brokers[0]?.nodeId);
    const setting = 'group.min.session.timeout.ms';
    const answer = await this.admin
      .describeConfigs({
        includeSynonyms: false,
        resources: [{ type: kafkajs.ConfigResourceTypes.BROKER, name: broker, configNames: [setting] }],
      })
      .catch(() => undefined); // a broker may refuse to tell; then it has the usual one
    const found = answer?.resources[0]?.configEntries.find(({ configName }) => configName === setting)?.configValue;
    return Number(found ?? USUAL_LEAST_SESSION_MS);
  }

  /** Records of the topic that the group has not committed yet. */
  async recordsBehind(): Promise<number> {
    const [ends, [committed]] = await Promise.all([
      this.admin.fetchTopicOffsets(this.topic),
      this.admin.fetchOffsets({ groupId: this.group, topics: [this.topic] }),
    ]);
    const offsets = new Map(committed?.partitions.map(({ partition, offset }) => [partition, Number(offset)]));
    return ends.reduce((sum, { partition, high }) => sum + Number(high) - Math.max(0, offsets.get(partition) ?? 0), 0);
  }

  /** Nobody may be using it any more. */
  async close(): Promise<void> {
    const { origin } = this.services;
    try {
      if (origin.kafka === 'environment') await this.#dropTopic();
      if (origin.postgres === 'environment' && this.database.isInitialized) {
        await this.database.query(`DROP SCHEMA IF EXISTS ${this.schema} CASCADE`);
      }
    } finally {
      await this.admin.disconnect();
      if (this.database.isInitialized) await this.database.destroy();
    }
  }

  async #createTopic(): Promise<void> {
    await this.admin.createTopics({
      topics: [{ topic: this.topic, numPartitions: PARTITIONS }],
      waitForLeaders: true,
    });
  }

  async #createTables(): Promise<void> {
    await this.database.query(`CREATE SCHEMA ${this.schema}`);
    await this.database.runMigrations();
    await this.database.query(CHECK_COLUMNS);
  }

  async #dropTopic(): Promise<void> {
    const topics = await this.admin.listTopics();
    if (topics.includes(this.topic)) await this.admin.deleteTopics({ topics: [this.topic] });
    const { groups } = await this.admin.listGroups();
    if (!groups.some(({ groupId }) => groupId === this.group)) return;
    // A group can go when its members are gone; those that were killed are once their session has ended.
    await until(() => this.admin.deleteGroups([this.group]).then(() => true), {
      what: `the group ${this.group} to be deleted`,
      timeoutMs: 20_000,
      intervalMs: 250,
    });
  }
}
