import { randomUUID } from 'node:crypto';
import { Kafka, logLevel, type Admin, type KafkaMessage } from 'kafkajs';
import { onTestFinished } from 'vitest';
import { until } from 'nestjs-kafka-idempotency/testing';

export interface StoredMessage {
  readonly partition: number;
  readonly key: string | undefined;
  readonly value: string | undefined;
  readonly message: KafkaMessage;
}

/** The broker of the run, or another one, and topics of a test's own. */
export class Topics {
  readonly kafka: Kafka;
  readonly admin: Admin;

  private constructor(brokers: string[]) {
    this.kafka = new Kafka({ brokers, logLevel: logLevel.NOTHING });
    this.admin = this.kafka.admin();
  }

  static async open(brokers = process.env['KAFKA_BROKERS']?.split(',') ?? []): Promise<Topics> {
    const topics = new Topics(brokers);
    await topics.admin.connect();
    onTestFinished(() => topics.admin.disconnect());
    return topics;
  }

  readonly newKafka = (): Kafka => this.kafka;

  async create(
    options: { partitions?: number; replicas?: number; config?: Record<string, string>; topic?: string } = {},
  ): Promise<string> {
    const { topic = `checked-${randomUUID()}`, partitions = 1, replicas = 1, config = {} } = options;
    const configEntries = Object.entries(config).map(([name, value]) => ({ name, value }));
    await this.admin.createTopics({
      topics: [{ topic, numPartitions: partitions, replicationFactor: replicas, configEntries }],
      waitForLeaders: false,
    });
    await until(() => this.#hasLeaders(topic), { what: `leaders for ${topic}` });
    return topic;
  }

  /** All that the topic holds, in the order of each partition. */
  async read(topic: string): Promise<StoredMessage[]> {
    const offsets = await this.admin.fetchTopicOffsets(topic);
    const count = offsets.reduce((sum, { high, low }) => sum + Number(high) - Number(low), 0);
    const consumer = this.kafka.consumer({ groupId: `read-${randomUUID()}`, maxWaitTimeInMs: 100 });
    const found: StoredMessage[] = [];
    await consumer.connect();
    await consumer.subscribe({ topics: [topic], fromBeginning: true });
    await consumer.run({
      eachMessage: async ({ partition, message }) =>
        void found.push({
          partition,
          key: message.key?.toString(),
          value: message.value?.toString(),
          message,
        }),
    });
    await until(() => found.length >= count, { what: `${count} records of ${topic}`, timeoutMs: 30_000 });
    await consumer.disconnect();
    return found.toSorted((a, b) => a.partition - b.partition);
  }

  /** The metadata names leaders before they know that they are. */
  async #hasLeaders(topic: string): Promise<boolean> {
    return (await this.admin.fetchTopicOffsets(topic)).length > 0;
  }
}
