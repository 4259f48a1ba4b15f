import type { Admin, Kafka } from 'kafkajs';
import { within } from '../shared/within.js';
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
/** A client can wait for ever for a broker that is frozen; the next one may ask another. */
const PATIENCE_MS = 5000;
/** kafkajs itself waits this long for the leaders of new topics. */
const LEADERS_MS = 15_000;
const DISCONNECT_MS = 500;

/**
 * Reads of the cluster, each by a client made for it: one that lives on asks the leaders it knew minutes ago, and fails for ever over a topic that is gone.
 * Rejects as kafkajs does, or when there is no answer for seconds; the callers know how long to go on. kafkajs fails over a partition without a leader in any topic it
 * asks about, and asks about all unless told which: so only {@link ClusterReader.topics}, which cannot be told, waits for other people's topics.
 */
export class ClusterReader {
  constructor(private readonly newKafka: () => Kafka) {}

  /** Those of the topics that exist, whether or not they have their leaders. */
  existing(topics: readonly string[]): Promise<string[]> {
    return this.#ask(async (admin) => {
      if (topics.length === 0 || (await haveLeaders(admin, topics))) return [...topics];
      const found: string[] = [];
      for (const topic of topics) if (await exists(admin, topic)) found.push(topic);
      return found;
    }, LEADERS_MS);
  }

  /** Names of all topics but Kafka's own. Rejects while one of them has no leader. */
  topics(): Promise<string[]> {
    return this.#ask(async (admin) => {
      const all = await admin.listTopics();
      return all.filter((topic) => !topic.startsWith('__'));
    }, LEADERS_MS);
  }

  /** Committed offsets and bounds of the partitions. Rejects if the cluster does not know one of them yet. */
  async positions(groupId: string, partitions: readonly TopicPartition[]): Promise<Positions> {
    if (partitions.length === 0) return { committed: new Map(), bounds: new Map() };
    const topics = [...new Set(partitions.map(({ topic }) => topic))];
    return this.#ask(async (admin) => {
      const bounds = await boundsOf(admin, topics); // first, for by this the client learns which topics are its own
      const committed = await committedOf(admin, groupId, topics);
      const unknown = partitions.find((place) => !bounds.has(partitionKey(place)));
      if (unknown !== undefined)
        throw new Error(`the cluster does not know ${unknown.topic}[${unknown.partition}] yet`);
      return { committed, bounds };
    });
  }

  async #ask<T>(read: (admin: Admin) => Promise<T>, patienceMs = PATIENCE_MS): Promise<T> {
    const admin = this.newKafka().admin();
    const answer = admin.connect().then(() => read(admin));
    const isOver = answer.catch(() => undefined).then(() => admin.disconnect()); // a failed answer is told below
    if (!(await within(answer, patienceMs))) {
      isOver.catch(() => undefined); // whenever that is: nobody waits for it
      throw new Error(`the brokers did not answer within ${patienceMs / 1000} s`);
    }
    await within(isOver, DISCONNECT_MS).catch(() => undefined); // what was read counts
    return answer;
  }
}

async function haveLeaders(admin: Admin, topics: readonly string[]): Promise<boolean> {
  try {
    await admin.fetchTopicMetadata({ topics: [...topics] });
    return true;
  } catch (error) {
    if (MISSING.includes(typeOf(error)) || typeOf(error) === LEADERLESS) return false;
    throw error;
  }
}

async function exists(admin: Admin, topic: string): Promise<boolean> {
  try {
    await admin.fetchTopicMetadata({ topics: [topic] });
    return true;
  } catch (error) {
    if (MISSING.includes(typeOf(error))) return false;
    if (typeOf(error) === LEADERLESS) return true;
    throw error;
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
