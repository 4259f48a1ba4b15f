import type { Admin, Kafka } from 'kafkajs';
import { within } from '../shared/within.js';
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
/** A client can wait for ever for a broker that is frozen; the next one may ask another. */
const PATIENCE_MS = 5000;
const DISCONNECT_MS = 500;

/**
 * Reads of the cluster, each by a client made for it: one that lives on asks the leaders it knew minutes ago, and fails for ever over a topic that is gone.
 * Rejects as kafkajs does, or after five seconds; the callers know how long to go on.
 */
export class ClusterReader {
  constructor(private readonly newKafka: () => Kafka) {}

  /** Names of all topics but Kafka's own. */
  topics(): Promise<string[]> {
    return this.#ask(async (admin) => (await admin.listTopics()).filter((topic) => !topic.startsWith('__')));
  }

  /** Committed offsets and bounds of the partitions. Rejects if the cluster does not know one of them yet. */
  async positions(groupId: string, partitions: readonly TopicPartition[]): Promise<Positions> {
    if (partitions.length === 0) return { committed: new Map(), bounds: new Map() };
    const topics = [...new Set(partitions.map(({ topic }) => topic))];
    return this.#ask(async (admin) => {
      const committed = await committedOf(admin, groupId, topics);
      const bounds = await boundsOf(admin, topics);
      const unknown = partitions.find((place) => !bounds.has(partitionKey(place)));
      if (unknown !== undefined)
        throw new Error(`the cluster does not know ${unknown.topic}[${unknown.partition}] yet`);
      return { committed, bounds };
    });
  }

  async #ask<T>(read: (admin: Admin) => Promise<T>): Promise<T> {
    const admin = this.newKafka().admin();
    const answer = admin.connect().then(() => read(admin));
    const isOver = answer.catch(() => undefined).then(() => admin.disconnect());
    if (!(await within(answer, PATIENCE_MS))) {
      isOver.catch(() => undefined); // whenever that is: nobody waits for it
      throw new Error(`the brokers did not answer within ${PATIENCE_MS / 1000} s`);
    }
    await within(isOver, DISCONNECT_MS).catch(() => undefined); // what was read counts
    return answer;
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
