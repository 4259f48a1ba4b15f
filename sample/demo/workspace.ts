import { randomBytes } from 'node:crypto';
import type { Admin, Kafka } from 'kafkajs';
import { DataSource } from 'typeorm';
import { idempotencyMigrations } from 'nestjs-kafka-idempotency/schema';
import type { Services } from '../../test/services/services.js';
import { CreatePayments1764288000001 } from '../01-orders/payments/create-payments.migration.js';
import { drop, leastSessionMs, recordsBehind } from './broker.js';
import { PARTITIONS } from './events.js';

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
  leastSessionMs(): Promise<number> {
    return leastSessionMs(this.admin);
  }

  /** Records of the topic that the group has not committed yet. */
  recordsBehind(): Promise<number> {
    return recordsBehind(this.admin, this);
  }

  /** Nobody may be using it any more. */
  async close(): Promise<void> {
    const { origin } = this.services;
    try {
      if (origin.kafka === 'environment') await drop(this.admin, { topics: [this.topic], groups: [this.group] });
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
}
