import { setTimeout as sleep } from 'node:timers/promises';
import { Logger } from '@nestjs/common';
import type { ConsumerConfig, Kafka } from 'kafkajs';
import { IdempotencyError } from '../shared/errors.js';
import type { EmitEvent } from '../shared/events.js';
import type { DecodingSettings } from '../kafka/codecs.js';
import type { ClusterReader, OffsetBounds, Positions } from '../kafka/cluster-reader.js';
import {
  GroupClient,
  type FetchedBatch,
  type FilteredBatch,
  type GroupListener,
  type UndecodableBatch,
} from '../kafka/group-client.js';
import { partitionKey, type TopicPartition } from '../kafka/positions.js';
import { STALE_SESSION } from '../shared/session.js';
import { within } from '../shared/within.js';
import { Lane, type LaneHost } from './lane.js';
import { OffsetCommitter, type Barrier } from './offset-committer.js';
import { OffsetLedger } from './offset-ledger.js';
import type { RecordDelivery } from './record-delivery.js';

const ANCHOR_RETRY_MS = 250;
/** For what was killed to say how it ended: a little more than a delivery is waited for. */
const KILLED_MS = 1100;
const LEAVE_MS = 500;

export interface MembershipParts {
  readonly newKafka: () => Kafka;
  readonly config: ConsumerConfig & { readonly sessionTimeout: number };
  readonly groupId: string;
  readonly fromBeginning: boolean;
  readonly buffer: { readonly records: number; readonly bytes: number };
  readonly batchBytes: number;
  readonly codecs: DecodingSettings['codecs'];
  readonly commitIntervalMs: number;
  readonly reader: ClusterReader;
  readonly delivery: RecordDelivery;
  readonly barrier: Barrier;
  readonly emit: EmitEvent;
  readonly isPaused: (topic: string) => boolean;
  /** Lanes of earlier assignments that may still be working, by partition. */
  readonly endings: Map<string, Promise<void>>;
}

/**
 * One membership of the group, from join to end. GROUP_JOIN alone says which partitions are ours, and each is anchored before anything of it runs:
 * - at once in the join: lanes that are not ours die, and fetching of all assigned partitions is paused;
 * - then the committed offsets are read, each lane is set to where it has to go on, and every partition is sought to it and resumed, unless a
 *   newer join came meanwhile;
 * - what a lane has done is believed over a join only if the member is the same and the group's offset is the one this lane wrote;
 * - a batch counts only if it begins where its lane ends. A fetch that was under way over a join may bring an older or newer position.
 */
export class Membership implements GroupListener, LaneHost {
  /** Resolves with the error when the Kafka client has crashed. */
  readonly crash: Promise<Error>;
  readonly #logger = new Logger('IdempotentKafkaServer');
  readonly #client: GroupClient;
  readonly #committer: OffsetCommitter;
  readonly #lanes = new Map<string, Lane>();
  readonly #doubted = new Map<string, string>();
  readonly #refusals = new Map<string, number>();
  readonly #timer: NodeJS.Timeout;
  #tellCrash: (error: Error) => void = () => {};
  #epoch = 0;
  #memberId: string | undefined;
  #anchored = false;
  #ending = false;
  #ended: Promise<void> | undefined;
  #lastHeartbeat = performance.now();

  constructor(
    private readonly parts: MembershipParts,
    readonly topics: readonly string[],
  ) {
    this.crash = new Promise((resolve) => (this.#tellCrash = resolve));
    this.#client = new GroupClient(parts.newKafka(), parts.config, this, parts);
    this.#committer = new OffsetCommitter(this.#client, () => this.#lanes.values(), parts.barrier, parts.emit);
    this.#timer = setInterval(() => void this.#commit(), parts.commitIntervalMs);
  }

  get consumer() {
    return this.#client.consumer;
  }
  get lanes(): readonly Lane[] {
    return [...this.#lanes.values()];
  }
  get isAnchored(): boolean {
    return this.#anchored;
  }
  get isStale(): boolean {
    return performance.now() - this.#lastHeartbeat > STALE_SESSION * this.parts.config.sessionTimeout;
  }

  /** Joins and begins to consume. Rejects if the brokers cannot be reached. */
  start(): Promise<void> {
    return this.#client.run(this.topics);
  }

  /** Lets deliveries end until the deadline, commits, leaves the group. Resolves also if some of it did not come to its end in time. */
  end(deadlineMs: number): Promise<void> {
    return (this.#ended ??= this.#end(deadlineMs));
  }

  async #end(deadlineMs: number): Promise<void> {
    const endsAt = performance.now() + deadlineMs;
    this.#ending = true;
    clearInterval(this.#timer);
    this.#client.pauseTopics(this.topics);
    const lanes = this.lanes;
    lanes.forEach((lane) => lane.finish());
    const atRest = Promise.all(lanes.map((lane) => lane.atRest()));
    const deadline = new IdempotencyError(
      'SHUTDOWN_DEADLINE',
      `The handler did not end within the ${deadlineMs} ms that draining may take (shutdown.deadline), so its transaction is rolled back; the record is delivered again`,
      { retryable: true },
    );
    if (!(await within(atRest, deadlineMs))) {
      this.parts.delivery.killAll(deadline);
      await within(atRest, KILLED_MS);
    }
    const left = Math.max(endsAt - performance.now(), LEAVE_MS);
    await within(this.#committer.flush(), left / 2);
    await within(
      this.#client.leave().catch((error: unknown) => this.#logger.warn(`Leaving the group failed: ${String(error)}`)),
      left / 2,
    );
    this.#dropLanes(this.lanes, deadline); // all there are now: an anchor under way may have opened some
  }

  // --- what the group client tells ---

  joined({ memberId, partitions }: { memberId: string; partitions: readonly TopicPartition[] }): void {
    const epoch = (this.#epoch += 1);
    const isSameMember = memberId === this.#memberId;
    this.#memberId = memberId;
    this.#anchored = false;
    this.#lastHeartbeat = performance.now();
    if (this.#ending) this.#committer.open(); // no anchor comes any more, and what ends now is still ours to commit
    const assigned = new Set(partitions.map(partitionKey));
    const lost = this.lanes.filter((lane) => !assigned.has(partitionKey(lane)));
    this.#dropLanes(
      lost,
      new IdempotencyError('PARTITION_LOST', 'The group gave this partition to another member', { retryable: true }),
    );
    for (const lane of this.#lanes.values()) lane.hold();
    if (partitions.length > 0) this.#client.pause(partitions);
    void this.#anchor(epoch, isSameMember, partitions);
  }

  rebalancing(): void {
    this.#committer.commitNow();
  }

  fetched(batch: FetchedBatch): boolean {
    const key = partitionKey(batch);
    const lane = this.#lanes.get(key);
    if (lane === undefined || !this.#anchored) return false;
    if (batch.fetchedOffset !== lane.ledger.next) {
      this.#refuse(lane);
      return false;
    }
    if (this.#isTooLarge(batch, lane)) return false;
    lane.accept(batch);
    this.#refusals.delete(key);
    this.#doubted.delete(key);
    if (lane.queued >= this.parts.buffer.records || this.#bufferedBytes() >= this.parts.buffer.bytes) {
      lane.full = true;
      this.#client.pause([lane]);
    }
    return true;
  }

  #isTooLarge(batch: FetchedBatch, lane: Lane): boolean {
    const bytes = batch.messages.reduce((sum, { key, value }) => sum + (key?.length ?? 0) + (value?.length ?? 0), 0);
    if (bytes <= this.parts.batchBytes) return false;
    const message = `A batch of ${lane.topic}[${lane.partition}] at offset ${batch.fetchedOffset} holds ${bytes} bytes after decompression, more than limits.batchBytes (${this.parts.batchBytes}), so the partition stops. Raise the limit if this machine has the memory`;
    lane.stopped ??= new IdempotencyError('BATCH_TOO_LARGE', message);
    this.#logger.error(lane.stopped.message);
    this.#client.pause([lane]);
    return true;
  }

  /** kafkajs has moved behind the batch already. One that does not begin where the lane ends is believed only when it comes again after a seek. */
  filtered(batch: FilteredBatch): void {
    const key = partitionKey(batch);
    const lane = this.#lanes.get(key);
    if (lane === undefined || !this.#anchored) return;
    const begins = batch.firstOffset ?? batch.lastOffset;
    const span = `${begins}-${batch.lastOffset} at ${lane.ledger.next}`;
    if (begins === lane.ledger.next || this.#doubted.get(key) === span) {
      this.#doubted.delete(key);
      lane.ledger.cover(batch.lastOffset + 1n);
      if (lane.isIdle) this.ranDry();
    } else {
      this.#doubted.set(key, span);
      this.#client.seek({ topic: lane.topic, partition: lane.partition, offset: lane.ledger.next });
    }
  }

  /** Nothing of it can be given to anybody, parking included, and nothing is skipped: the partition stops in front of it. */
  undecodable({ topic, partition, position, firstOffset, code, detail }: UndecodableBatch): void {
    const lane = this.#lanes.get(partitionKey({ topic, partition }));
    if (lane === undefined || !this.#anchored) return;
    if (position !== lane.ledger.next) return this.#refuse(lane);
    const message = `The batch at offset ${firstOffset} of ${topic}[${partition}] cannot be read, so the partition stops in front of it: ${detail}`;
    const error = new IdempotencyError(code, message, { facts: { topic, partition, offset: position.toString() } });
    lane.stopBehind(error);
    this.#logger.error(error.message);
    this.#client.pause([lane]);
  }

  heartbeat(): void {
    const wasStale = this.isStale;
    this.#lastHeartbeat = performance.now();
    if (wasStale) this.#wake();
  }

  crashed(error: Error): void {
    clearInterval(this.#timer);
    this.#epoch += 1;
    this.#anchored = false;
    this.#dropLanes(
      this.lanes,
      new IdempotencyError('CONSUMER_CRASHED', 'The Kafka client crashed; a new one joins the group', {
        retryable: true,
        cause: error,
      }),
    );
    this.#tellCrash(error);
  }

  // --- what the lanes ask ---

  mayStart(lane: Lane): boolean {
    return !this.#ending && lane.ledger.committed !== undefined && !this.parts.isPaused(lane.topic) && !this.isStale;
  }

  settled(): void {
    if (!this.#anchored) return; // the anchor resumes
    const full = this.lanes.filter((lane) => lane.full);
    if (full.length > 0) this.#resume(full.filter((lane) => this.#hasRoom(lane)));
  }

  ranDry(): void {
    void this.#commit();
  }

  /** The user paused or resumed a topic. What is being handled ends; nothing further begins while it is paused. */
  pauseChanged(topic: string): void {
    const lanes = this.lanes.filter((lane) => lane.topic === topic);
    if (lanes.length === 0) return;
    if (this.parts.isPaused(topic)) this.#client.pause(lanes);
    else if (this.#anchored) this.#resume(lanes.filter((lane) => !lane.full || this.#hasRoom(lane)));
    this.#wake();
  }

  // --- inside ---

  async #anchor(epoch: number, isSameMember: boolean, partitions: readonly TopicPartition[]): Promise<void> {
    const known = await this.#readPositions(epoch, partitions);
    if (known === undefined) return; // a newer join has begun
    const anchored = partitions.map((place) => this.#anchoredLane(place, isSameMember, known));
    this.#anchored = true;
    this.#committer.open();
    for (const lane of anchored)
      this.#client.seek({ topic: lane.topic, partition: lane.partition, offset: lane.ledger.next });
    this.#resume(anchored.filter((lane) => !lane.full || this.#hasRoom(lane)));
    for (const lane of anchored) lane.release();
    this.#tellAssigned(anchored);
    await this.#commit(); // where the group had no offset, lanes wait until the first position stands
  }

  async #readPositions(epoch: number, partitions: readonly TopicPartition[]): Promise<Positions | undefined> {
    while (epoch === this.#epoch && !this.#ending) {
      try {
        const positions = await this.parts.reader.positions(this.parts.groupId, partitions);
        return epoch === this.#epoch && !this.#ending ? positions : undefined;
      } catch (error) {
        this.#logger.warn(`Reading the group's offsets failed, so nothing runs yet: ${(error as Error).message}`);
        await sleep(ANCHOR_RETRY_MS);
      }
    }
    return undefined;
  }

  #anchoredLane(place: TopicPartition, isSameMember: boolean, known: Positions): Lane {
    const key = partitionKey(place);
    const committed = known.committed.get(key);
    const bounds = known.bounds.get(key)!; // positions() rejects unless all are there
    const lane = this.#lanes.get(key);
    if (lane !== undefined) {
      // The bounds tell a topic that was made anew meanwhile, unless it has grown beyond the old one already.
      const isInLog = bounds.low <= lane.ledger.committable && lane.ledger.next <= bounds.high;
      if (isSameMember && isInLog && committed !== undefined && committed === lane.ledger.committed) return lane;
      this.#dropLanes(
        [lane],
        new IdempotencyError('PARTITION_LOST', 'Another member may have worked on this partition meanwhile', {
          retryable: true,
        }),
      );
    }
    const first =
      committed === undefined
        ? this.parts.fromBeginning
          ? bounds.low
          : bounds.high
        : this.#inRange(place, committed, bounds);
    return this.#openLane(place, new OffsetLedger(first, committed));
  }

  #openLane(place: TopicPartition, ledger: OffsetLedger): Lane {
    const key = partitionKey(place);
    const lane = new Lane(place, ledger, this, this.parts.delivery, this.parts.endings.get(key) ?? Promise.resolve());
    this.parts.endings.set(key, lane.ended);
    this.#lanes.set(key, lane);
    return lane;
  }

  /** `offset` if its records can still be there, else the first stored one: never silently the end. */
  #inRange(place: TopicPartition, offset: bigint, { low, high }: OffsetBounds): bigint {
    if (offset >= low && offset <= high) return offset;
    this.parts.emit({
      name: 'gap',
      topic: place.topic,
      partition: place.partition,
      from: offset.toString(),
      to: low.toString(),
    });
    this.#logger.error(
      `The next offset of ${place.topic}[${place.partition}] is ${offset}, but Kafka holds ${low} to ${high}: what lies before ${low} was deleted unread, or the topic was made anew. Going on at ${low} (OFFSET_OUT_OF_RANGE)`,
    );
    return low;
  }

  /** The batch does not continue the lane. Once is a fetch that was under way over a join; again and again means that the offset is gone. */
  #refuse(lane: Lane): void {
    const key = partitionKey(lane);
    const refusals = (this.#refusals.get(key) ?? 0) + 1;
    this.#refusals.set(key, refusals);
    this.#client.seek({ topic: lane.topic, partition: lane.partition, offset: lane.ledger.next });
    if (refusals % 3 === 0) void this.#reanchor(lane);
  }

  async #reanchor(lane: Lane): Promise<void> {
    const known = await this.#readPositions(this.#epoch, [lane]);
    const bounds = known?.bounds.get(partitionKey(lane));
    if (bounds === undefined || lane.isDead || !lane.isIdle) return;
    const first = this.#inRange(lane, lane.ledger.next, bounds);
    if (first === lane.ledger.next) return;
    this.#dropLanes(
      [lane],
      new IdempotencyError('OFFSET_OUT_OF_RANGE', 'The records this lane was waiting for are gone'),
    );
    const next = this.#openLane(lane, new OffsetLedger(first, undefined));
    this.#client.seek({ topic: next.topic, partition: next.partition, offset: first });
    next.release();
    await this.#commit();
  }

  #resume(lanes: readonly Lane[]): void {
    for (const lane of lanes) lane.full = false;
    const wanted = lanes.filter((lane) => !this.parts.isPaused(lane.topic));
    if (wanted.length > 0 && !this.#ending) this.#client.resume(wanted);
  }

  #hasRoom(lane: Lane): boolean {
    if (lane.isIdle) return true; // however much the others hold, each partition goes on
    return lane.queued < this.parts.buffer.records / 2 && this.#bufferedBytes() < this.parts.buffer.bytes / 2;
  }

  #bufferedBytes(): number {
    let sum = 0;
    for (const lane of this.#lanes.values()) sum += lane.queuedBytes;
    return sum;
  }

  async #commit(): Promise<void> {
    await this.#committer.flush();
    this.#wake(); // a first position may have been written
  }

  #wake(): void {
    for (const lane of this.#lanes.values()) lane.wake();
  }

  #dropLanes(lanes: readonly Lane[], reason: IdempotencyError): void {
    if (lanes.length === 0) return;
    for (const lane of lanes) {
      const key = partitionKey(lane);
      lane.die(reason);
      this.#lanes.delete(key);
      this.#doubted.delete(key);
      this.#refusals.delete(key);
    }
    const partitions = lanes.map(({ topic, partition }) => ({ topic, partition }));
    this.parts.emit({ name: 'revoked', groupId: this.parts.groupId, partitions });
  }

  #tellAssigned(lanes: readonly Lane[]): void {
    const partitions = lanes.map((lane) => ({
      topic: lane.topic,
      partition: lane.partition,
      offset: lane.ledger.committable.toString(),
    }));
    this.parts.emit({ name: 'assigned', groupId: this.parts.groupId, memberId: this.#memberId ?? '', partitions });
    const shown = partitions.map(({ topic, partition, offset }) => `${topic}[${partition}]@${offset}`).join(' ');
    this.#logger.log(
      `Group ${this.parts.groupId}: ${partitions.length === 0 ? 'no partition assigned' : `assigned ${shown}`}`,
    );
  }
}
