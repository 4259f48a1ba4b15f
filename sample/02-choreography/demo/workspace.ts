import { randomBytes } from 'node:crypto';
import type { Admin, Kafka } from 'kafkajs';
import { DataSource } from 'typeorm';
import type { Services } from '../../../test/services/services.js';
import { drop, leastSessionMs, recordsBehind } from '../../demo/broker.js';
import type { Line } from './sums.js';

const PARTITIONS = 3;
export const SERVICES = ['shop', 'warehouse'] as const;
export type ServiceName = (typeof SERVICES)[number];
/** Who reads what. */
const READS = [
  { service: 'shop', topic: 'orders.created' },
  { service: 'warehouse', topic: 'payments.captured' },
  { service: 'shop', topic: 'shipments.created' },
] as const;

/** Topics, groups and two schemas of one run's own, so that runs side by side do not meet. Services that were there before are left as they were found. */
export class Workspace {
  private constructor(
    readonly name: string,
    private readonly services: Services,
    private readonly admin: Admin,
    private readonly database: DataSource,
  ) {}

  static async create(services: Services, kafka: Kafka): Promise<Workspace> {
    const name = `demo_${randomBytes(6).toString('hex')}`;
    const database = new DataSource({ type: 'postgres', url: services.databaseUrl });
    const workspace = new Workspace(name, services, kafka.admin(), database);
    try {
      await Promise.all([workspace.admin.connect(), database.initialize()]);
      await Promise.all([workspace.#createTopics(), workspace.#createSchemas()]);
      return workspace;
    } catch (error) {
      await workspace.close();
      throw error;
    }
  }

  /** Of topics and groups. */
  get prefix(): string {
    return `${this.name}.`;
  }

  schemaOf(service: ServiceName): string {
    return `${this.name}_${service}`;
  }

  /** The shortest session the brokers grant. */
  leastSessionMs(): Promise<number> {
    return leastSessionMs(this.admin);
  }

  /** In the three topics together. */
  async records(): Promise<number> {
    const ends = await Promise.all(READS.map(({ topic }) => this.admin.fetchTopicOffsets(this.prefix + topic)));
    return ends.flat().reduce((sum, { high }) => sum + Number(high), 0);
  }

  /** What is under way: records not committed, rows of the outboxes not sent, records that came while they were counted. */
  async left(): Promise<number> {
    const before = await this.records();
    const behind = await Promise.all(READS.map((read) => this.#behind(read)));
    const unsent = await Promise.all(SERVICES.map((name) => this.#rows(`${this.schemaOf(name)}.outbox_messages`)));
    // A row that was there a moment ago and is not counted here stands in a topic since.
    const came = (await this.records()) - before;
    return [...behind, ...unsent].reduce((sum, count) => sum + count, came);
  }

  /** What the services have written. `shipped`: an order as often as the shop was told of its shipment. */
  async lines(): Promise<Record<'orders' | 'payments' | 'shipments' | 'shipped', Line[]>> {
    const [shop, warehouse] = SERVICES.map((service) => this.schemaOf(service));
    const read = (from: string) => this.database.query<Line[]>(`SELECT order_id AS "orderId", cents FROM ${from}`);
    return {
      orders: await read(`${shop}.orders`),
      payments: await read(`${shop}.payments`),
      shipments: await read(`${warehouse}.shipments`),
      shipped: await read(`${shop}.orders CROSS JOIN LATERAL generate_series(1, shipped)`),
    };
  }

  /** Nobody may be using it any more. */
  async close(): Promise<void> {
    const { origin } = this.services;
    try {
      if (origin.kafka === 'environment') {
        const [topics, groups] = [
          READS.map(({ topic }) => this.prefix + topic),
          SERVICES.map((name) => this.prefix + name),
        ];
        await drop(this.admin, { topics, groups });
      }
      if (origin.postgres === 'environment' && this.database.isInitialized)
        for (const service of SERVICES)
          await this.database.query(`DROP SCHEMA IF EXISTS ${this.schemaOf(service)} CASCADE`);
    } finally {
      await this.admin.disconnect();
      if (this.database.isInitialized) await this.database.destroy();
    }
  }

  async #createTopics(): Promise<void> {
    const topics = READS.map(({ topic }) => ({ topic: this.prefix + topic, numPartitions: PARTITIONS }));
    await this.admin.createTopics({ topics, waitForLeaders: true });
  }

  async #createSchemas(): Promise<void> {
    for (const service of SERVICES) await this.database.query(`CREATE SCHEMA ${this.schemaOf(service)}`);
  }

  #behind({ service, topic }: (typeof READS)[number]): Promise<number> {
    return recordsBehind(this.admin, { group: this.prefix + service, topic: this.prefix + topic });
  }

  async #rows(table: string): Promise<number> {
    const [row] = await this.database.query<{ count: number }[]>(`SELECT count(*)::integer AS count FROM ${table}`);
    return row!.count;
  }
}
