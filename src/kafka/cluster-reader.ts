import type { Admin, Kafka } from 'kafkajs';
import { LEADERLESS, typeOf } from './broker-answer.js';
import { partitionKey, type TopicPartition } from './positions.js';

/** First offset still stored and the one the next record will get. */
export interface OffsetBounds {
  readonly low: bigint;
  readonly high: bigint;
}

/** Where a group and its partitions stand, by {@link partitionKey}. */
export interface Positions {
  /** -2 where kafkajs has written that over an offset that was out of range; missing where the group has none. */
  readonly committed: ReadonlyMap<string, bigint>;
  readonly bounds: ReadonlyMap<string, OffsetBounds>;
}

const NO_OFFSET = -1n;
/** Answers of the cluster that mean: not for you to read. */
const MISSING: readonly unknown[] = [
  'UNKNOWN_TOPIC_OR_PARTITION',
  'INVALID_TOPIC_EXCEPTION',
  'TOPIC_AUTHORIZATION_FAILED',
];

/**
 * Reads of the cluster. Rejects as kafkajs does; the callers know how long to go on. kafkajs fails over a partition without a leader in any topic it asks
 * about, and asks about all unless told which: so only {@link ClusterReader.topics}, which cannot be told, waits for other people's topics.
 */
export class ClusterReader {
  readonly #admin: Admin;
  #connected: Promise<void> | undefined;

  constructor(private readonly kafka: Kafka) {
    this.#admin = kafka.admin();
  }

  /** Those of the topics that exist, whether or not they have their leaders. */
  async existing(topics: readonly string[]): Promise<string[]> {
    await this.#connect();
    if (topics.length === 0) return [];
    if (await this.#haveLeaders(topics)) return [...topics];
    const found: string[] = [];
    for (const topic of topics) if (await this.#exists(topic)) found.push(topic);
    return found;
  }

  /** Names of all topics but Kafka's own. Rejects while one of them has no leader. */
  async topics(): Promise<string[]> {
    await this.#connect();
    return (await this.#admin.listTopics()).filter((topic) => !topic.startsWith('__'));
  }

  /**
   * Committed offsets and bounds of the partitions, from a client made for this: one that lives on asks the leaders it knew minutes ago, and fails for
   * ever over a topic that is gone. Rejects if the cluster does not know one of the partitions yet.
   */
  async positions(groupId: string, partitions: readonly TopicPartition[]): Promise<Positions> {
    if (partitions.length === 0) return { committed: new Map(), bounds: new Map() };
    const admin = this.kafka.admin();
    await admin.connect();
    try {
      const topics = [...new Set(partitions.map(({ topic }) => topic))];
      const bounds = await boundsOf(admin, topics); // first, for by this the client learns which topics are its own
      const committed = await committedOf(admin, groupId, topics);
      const unknown = partitions.find((place) => !bounds.has(partitionKey(place)));
      if (unknown !== undefined)
        throw new Error(`the cluster does not know ${unknown.topic}[${unknown.partition}] yet`);
      return { committed, bounds };
    } finally {
      await admin.disconnect();
    }
  }

  async close(): Promise<void> {
    if (this.#connected !== undefined) await this.#admin.disconnect();
  }

  async #haveLeaders(topics: readonly string[]): Promise<boolean> {
    try {
      await this.#admin.fetchTopicMetadata({ topics: [...topics] });
      return true;
    } catch (error) {
      if (MISSING.includes(typeOf(error)) || typeOf(error) === LEADERLESS) return false;
      throw error;
    }
  }

  async #exists(topic: string): Promise<boolean> {
    try {
      await this.#admin.fetchTopicMetadata({ topics: [topic] });
      return true;
    } catch (error) {
      if (MISSING.includes(typeOf(error))) return false;
      if (typeOf(error) === LEADERLESS) return true;
      throw error;
    }
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

async function committedOf(admin: Admin, groupId: string, topics: string[]): Promise<Map<string, bigint>> {
  const found = new Map<string, bigint>();
  for (const { topic, partitions } of await admin.fetchOffsets({ groupId, topics })) {
    for (const { partition, offset } of partitions) {
      if (BigInt(offset) !== NO_OFFSET) found.set(partitionKey({ topic, partition }), BigInt(offset));
    }
  }
  return found;
}

async function boundsOf(admin: Admin, topics: string[]): Promise<Map<string, OffsetBounds>> {
  const found = new Map<string, OffsetBounds>();
  for (const topic of topics) {
    for (const { partition, low, high } of await admin.fetchTopicOffsets(topic)) {
      found.set(partitionKey({ topic, partition }), { low: BigInt(low), high: BigInt(high) });
    }
  }
  return found;
}
