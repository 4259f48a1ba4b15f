import type { Admin, Kafka } from 'kafkajs';
import { partitionKey, type TopicPartition } from './positions.js';

/** First offset still stored and the one the next record will get. */
export interface OffsetBounds {
  readonly low: bigint;
  readonly high: bigint;
}

/** Reads of the cluster through one admin client, connected at the first use. Rejects as kafkajs does; the callers know how long to go on. */
export class ClusterReader {
  readonly #admin: Admin;
  #connected: Promise<void> | undefined;

  constructor(kafka: Kafka) {
    this.#admin = kafka.admin();
  }

  /** Names of all topics but Kafka's own. */
  async topics(): Promise<string[]> {
    await this.#connect();
    return (await this.#admin.listTopics()).filter((topic) => !topic.startsWith('__'));
  }

  /** The group's committed offsets by {@link partitionKey}; partitions without one are missing from the map. */
  async committed(groupId: string, topics: readonly string[]): Promise<Map<string, bigint>> {
    await this.#connect();
    const found = new Map<string, bigint>();
    for (const { topic, partitions } of await this.#admin.fetchOffsets({ groupId, topics: [...topics] })) {
      for (const { partition, offset } of partitions) {
        if (BigInt(offset) >= 0n) found.set(partitionKey({ topic, partition }), BigInt(offset));
      }
    }
    return found;
  }

  async bounds(partitions: readonly TopicPartition[]): Promise<Map<string, OffsetBounds>> {
    await this.#connect();
    const found = new Map<string, OffsetBounds>();
    for (const topic of new Set(partitions.map((place) => place.topic))) {
      for (const { partition, low, high } of await this.#admin.fetchTopicOffsets(topic)) {
        found.set(partitionKey({ topic, partition }), { low: BigInt(low), high: BigInt(high) });
      }
    }
    return found;
  }

  async close(): Promise<void> {
    if (this.#connected !== undefined) await this.#admin.disconnect();
  }

  async #connect(): Promise<void> {
    this.#connected ??= this.#admin.connect();
    try {
      await this.#connected;
    } catch (error) {
      this.#connected = undefined; // the next read connects anew
      throw error;
    }
  }
}
