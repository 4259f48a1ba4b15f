import {
  PartitionAssigners,
  type Consumer,
  type ConsumerConfig,
  type EachBatchPayload,
  type Kafka,
  type KafkaMessage,
  type Offsets,
} from 'kafkajs';
import { IdempotencyError } from '../shared/errors.js';
import { within } from '../shared/within.js';
import { Decoding, type DecodingSettings } from './codecs.js';
import { lookAtFetched } from './fetched-partitions.js';
import { byTopic, type PartitionOffset, type TopicPartition } from './positions.js';
import { subscriptionAssigner } from './subscription-assigner.js';
import { isMarker, undecodableOf, type Undecodable } from './undecodable-marker.js';

const CONNECT_MS = 10_000;

/** What one fetch brought for one partition. `fetchedOffset` is the position that was asked for; `lastOffset` includes records kafkajs filtered out. */
export interface FetchedBatch extends TopicPartition {
  readonly fetchedOffset: bigint;
  readonly lastOffset: bigint;
  readonly messages: readonly KafkaMessage[];
}

/** A batch of aborted or control records alone: it holds nothing for a handler. `firstOffset` is undefined if compaction left nothing of it. */
export interface FilteredBatch extends TopicPartition {
  readonly firstOffset: bigint | undefined;
  readonly lastOffset: bigint;
}

/** A batch that cannot be read, at `position`: behind all that was handed over before it. */
export interface UndecodableBatch extends TopicPartition, Undecodable {
  readonly position: bigint;
}

/** What a group member is told. All calls are synchronous: what has to happen before kafkajs goes on happens inside them. */
export interface GroupListener {
  joined(member: { readonly memberId: string; readonly partitions: readonly TopicPartition[] }): void;
  /** The group is about to join anew: the last moment at which a commit still counts. */
  rebalancing(): void;
  /** true: the batch is taken and the position moves behind it. */
  fetched(batch: FetchedBatch): boolean;
  filtered(batch: FilteredBatch): void;
  /** Comes again with every fetch until the partition is paused; nothing of the batch is skipped. */
  undecodable(batch: UndecodableBatch): void;
  /** With each fetch: how far the partition may be read, `stable`, and how far it is written. */
  readable(bounds: TopicPartition & { readonly stable: bigint; readonly end: bigint }): void;
  heartbeat(): void;
  /** The client is dead and disconnected. */
  crashed(error: Error): void;
}

/**
 * One membership of the consumer group, and the only place that knows kafkajs's consumer:
 * - fetches only; nothing is committed unless {@link commit} is called;
 * - never restarts by itself: a crash is told, and the owner makes a new one;
 * - pause, resume and seek do nothing while kafkajs has no group (between crash and end), instead of throwing.
 */
export class GroupClient {
  readonly consumer: Consumer;
  readonly #decoding: Decoding;
  #commitOnce: ((offsets: Offsets) => Promise<void>) | undefined;
  #acknowledged = 0;
  #assigned: readonly TopicPartition[] = [];
  #leaving: Promise<void> | undefined;

  constructor(
    kafka: Kafka,
    config: ConsumerConfig,
    private readonly listener: GroupListener,
    decoding: DecodingSettings,
  ) {
    this.#decoding = new Decoding(decoding);
    lookAtFetched(kafka, (topic, { partition, lastStableOffset, highWatermark }) => {
      listener.readable({ topic, partition, stable: BigInt(lastStableOffset), end: BigInt(highWatermark) });
    });
    this.consumer = kafka.consumer({
      // Round robin for as long as a member that knows nothing else is in the group.
      partitionAssigners: [subscriptionAssigner(() => this.#assigned), PartitionAssigners.roundRobin],
      ...config,
      allowAutoTopicCreation: false,
      retry: { ...config.retry, restartOnFailure: async () => false },
    });
    this.#listen();
  }

  /** Connects, subscribes and begins to fetch. Rejects if the brokers cannot be reached; a failure after that is told as a crash. */
  async run(topics: readonly string[]): Promise<void> {
    // kafkajs does not leave a first broker that takes connections and never answers; the next client begins with another.
    if (!(await within(this.consumer.connect(), CONNECT_MS)))
      throw new Error(`no broker answered within ${CONNECT_MS / 1000} s`);
    // Every partition is sought by its owner. kafkajs needs this only where an offset is out of range: then it writes over the group's offset, and -2
    // (earliest) can be told from no offset, while -1 (latest) would lose what is stored.
    await this.consumer.subscribe({ topics: [...topics], fromBeginning: true });
    await this.#decoding.run(() =>
      this.consumer.run({
        autoCommit: false,
        eachBatchAutoResolve: false,
        eachBatch: async (payload) => Decoding.leave(() => this.#eachBatch(payload)),
      }),
    );
  }

  pause(partitions: readonly TopicPartition[]): void {
    this.#guarded(() => this.consumer.pause(byTopic(partitions, ({ partition }) => partition)));
  }

  /** Whole topics, so that it holds for partitions gained later. */
  pauseTopics(topics: readonly string[]): void {
    this.#guarded(() => this.consumer.pause(topics.map((topic) => ({ topic }))));
  }

  resume(partitions: readonly TopicPartition[]): void {
    this.#guarded(() => this.consumer.resume(byTopic(partitions, ({ partition }) => partition)));
  }

  seek({ topic, partition, offset }: PartitionOffset): void {
    this.#guarded(() => this.consumer.seek({ topic, partition, offset: offset.toString() }));
  }

  /**
   * Writes the group's offsets: one attempt, and resolved only if the broker acknowledged it. Only before the first batch of this membership has
   * come does kafkajs offer no single attempt, so that one goes through its retrier.
   */
  async commit(offsets: readonly PartitionOffset[]): Promise<void> {
    const acknowledgedBefore = this.#acknowledged;
    if (this.#commitOnce === undefined) {
      await this.consumer.commitOffsets(
        offsets.map(({ topic, partition, offset }) => ({ topic, partition, offset: offset.toString() })),
      );
    } else {
      await this.#commitOnce({
        topics: byTopic(offsets, ({ partition, offset }) => ({ partition, offset: offset.toString() })),
      });
    }
    // kafkajs resolves without sending anything while it stops or connects again.
    if (this.#acknowledged === acknowledgedBefore) {
      throw new IdempotencyError(
        'OFFSET_COMMIT_REFUSED',
        'The Kafka client dropped an offset commit because it is not in the group at the moment',
        { retryable: true },
      );
    }
  }

  /** Leaves the group and disconnects. Returns the promise already running when called again. */
  leave(): Promise<void> {
    return (this.#leaving ??= this.consumer.disconnect());
  }

  #listen(): void {
    const { events } = this.consumer;
    // Told from inside the fetch loop: what the listener begins must not take itself for a part of it.
    const on: Consumer['on'] = (event, listener) =>
      this.consumer.on(event as never, ((told: never) => Decoding.leave(() => listener(told))) as never);
    on(events.GROUP_JOIN, ({ payload }) => {
      const partitions = Object.entries(payload.memberAssignment).flatMap(([topic, numbers]) =>
        numbers.map((partition) => ({ topic, partition })),
      );
      this.#assigned = partitions;
      this.listener.joined({ memberId: payload.memberId, partitions });
    });
    on(events.REBALANCING, () => this.listener.rebalancing());
    on(events.HEARTBEAT, () => this.listener.heartbeat());
    on(events.COMMIT_OFFSETS, () => {
      this.#acknowledged += 1;
    });
    on(events.END_BATCH_PROCESS, ({ payload }) => {
      if (payload.batchSize > 0) return;
      const { topic, partition, lastOffset } = payload;
      const first = payload.firstOffset as string | null; // null over compacted batches; the types say string
      this.listener.filtered({
        topic,
        partition,
        firstOffset: first === null ? undefined : BigInt(first),
        lastOffset: BigInt(lastOffset),
      });
    });
    on(events.CRASH, ({ payload }) => this.listener.crashed(payload.error));
  }

  // oxlint-disable-next-line typescript/unbound-method -- closures in kafkajs, which use no this
  #eachBatch({ batch, resolveOffset, commitOffsetsIfNecessary }: EachBatchPayload): void {
    this.#commitOnce = commitOffsetsIfNecessary;
    const { topic, partition } = batch;
    const { fetchedOffset } = batch as typeof batch & { fetchedOffset: string }; // public in kafkajs, missing in its types
    const markerAt = batch.messages.findIndex(isMarker);
    const messages = markerAt === -1 ? batch.messages : batch.messages.slice(0, markerAt);
    const last = messages.at(-1);
    const lastOffset = BigInt((markerAt === -1 ? batch.lastOffset() : last?.offset) ?? fetchedOffset);
    if (last !== undefined) {
      const taken = this.listener.fetched({
        topic,
        partition,
        messages,
        fetchedOffset: BigInt(fetchedOffset),
        lastOffset,
      });
      if (!taken) return;
      this.#resolve(() => resolveOffset(last.offset));
    }
    if (markerAt === -1) return;
    const position = last === undefined ? BigInt(fetchedOffset) : lastOffset + 1n;
    this.listener.undecodable({ topic, partition, position, ...undecodableOf(batch.messages[markerAt]!) });
  }

  /** kafkajs throws a TypeError for a topic that a rebalance took meanwhile; the join that follows decides about the position. */
  #resolve(call: () => void): void {
    try {
      call();
    } catch (error) {
      if (!(error instanceof TypeError)) throw error;
    }
  }

  /** kafkajs throws "Consumer group was not initialized" between a crash and the end; a membership that is over has nothing to pause or seek. */
  #guarded(call: () => void): void {
    try {
      call();
    } catch (error) {
      if ((error as Error).name !== 'KafkaJSNonRetriableError') throw error;
    }
  }
}
