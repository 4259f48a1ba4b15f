import { Logger } from '@nestjs/common';
import { IdempotencyError } from '../shared/errors.js';
import { noteOf } from '../shared/failed-attempt.js';
import type { PartitionParking } from '../shared/parking.js';
import type { FetchedBatch } from '../kafka/group-client.js';
import type { TopicPartition } from '../kafka/positions.js';
import { ConsumedRecord } from './consumed-record.js';
import type { OffsetLedger } from './offset-ledger.js';
import type { LaneWork, RecordDelivery, Retrying } from './record-delivery.js';

/** What a lane asks of its group membership. */
export interface LaneHost {
  /** False while nothing may begin: heartbeats are missing, the topic is paused by the user, the consumer drains. */
  mayStart(lane: Lane): boolean;
  /** A record is final. */
  settled(): void;
  /** Nothing is left to do. */
  ranDry(): void;
}

export interface LaneParts {
  readonly place: TopicPartition;
  readonly ledger: OffsetLedger;
  readonly parking: PartitionParking;
  readonly host: LaneHost;
  readonly delivery: RecordDelivery;
  /** Of the lane that had this partition earlier in this process. */
  readonly predecessor: Promise<void>;
}

/**
 * The records of one assigned partition, one after another, in order:
 * - what waits here was fetched from `ledger.next` on without a hole;
 * - nothing begins before the lane that had this partition earlier in this process has ended;
 * - a dead lane begins nothing more; what it is doing may end, and the claim keeps that harmless.
 */
export class Lane implements LaneWork {
  readonly topic: string;
  readonly partition: number;
  readonly ledger: OffsetLedger;
  readonly parking: PartitionParking;
  /** Resolves when the lane is dead and its last delivery has ended, or was left behind at its timeout. */
  readonly ended: Promise<void>;
  /** Fetching is paused because the lane is full. */
  full = false;
  retrying: Retrying | undefined;
  stopped: IdempotencyError | undefined;
  /** When a record last began or ended here, or the lane was opened; by performance.now(). */
  lastActiveAt = performance.now();
  since = new Date();

  readonly #host: LaneHost;
  readonly #delivery: RecordDelivery;
  readonly #queue: ConsumedRecord[] = [];
  #queuedBytes = 0;
  #obstacle: IdempotencyError | undefined;
  #held = true;
  #marks = true;
  readonly #life = new AbortController();
  #interrupt = new AbortController();
  #wake: () => void = () => {};
  #work: Promise<unknown> | undefined;

  constructor({ place, predecessor, ...parts }: LaneParts) {
    this.topic = place.topic;
    this.partition = place.partition;
    this.ledger = parts.ledger;
    this.parking = parts.parking;
    this.#host = parts.host;
    this.#delivery = parts.delivery;
    this.ended = predecessor.then(() => this.#run());
  }

  get queued(): number {
    return this.#queue.length;
  }
  get queuedBytes(): number {
    return this.#queuedBytes;
  }
  get isDead(): boolean {
    return this.#life.signal.aborted;
  }
  /** A record is being delivered, tried again, or waits for a slot. */
  get isWorking(): boolean {
    return this.#work !== undefined;
  }
  /** Nothing more can be read, or nothing more begins. */
  get isBlocked(): boolean {
    return this.stopped !== undefined || this.#obstacle !== undefined;
  }
  get isIdle(): boolean {
    return this.#queue.length === 0;
  }

  /** Aborts when the record at hand shall not be tried again here: the lane died or the consumer drains. */
  get interrupted(): AbortSignal {
    return this.#interrupt.signal;
  }

  /** Takes a batch, which has to begin where the lane ends. */
  accept(batch: FetchedBatch): void {
    for (const message of batch.messages) {
      const record = new ConsumedRecord(this.topic, this.partition, message);
      this.#queue.push(record);
      this.#queuedBytes += record.bytes;
      this.ledger.take(record.offset);
    }
    this.ledger.cover(batch.lastOffset + 1n);
    this.wake();
  }

  /** Stops once what waits here is done: nothing behind it can be read. */
  stopBehind(obstacle: IdempotencyError): void {
    this.#obstacle = obstacle;
    this.wake();
  }

  /** Nothing begins until {@link release}. */
  hold(): void {
    this.#held = true;
  }

  release(): void {
    this.#held = false;
    this.#marks = true;
    this.wake();
  }

  mark(offset: bigint): Promise<void> | undefined {
    return this.#marks ? this.parking.mark(offset) : undefined;
  }

  /** Its mark goes, and none is set again until {@link release}: the next owner would take us for dead. */
  unmark(): Promise<void> {
    this.#marks = false;
    return this.parking.unmark();
  }

  /** It has something to deliver, and nothing of its own keeps it from that. */
  get isReady(): boolean {
    return !this.#held && !this.isDead && this.stopped === undefined && !this.isIdle;
  }

  /** Whether a delivery may begin: the first of a record, a further try, or that of its next handler. */
  get mayBegin(): boolean {
    return !this.#held && this.stopped === undefined && this.#host.mayStart(this);
  }

  /** Resolves when one may begin, or when the lane is interrupted. */
  async untilMayBegin(): Promise<void> {
    while (!this.mayBegin && !this.interrupted.aborted) await this.#untilWoken();
  }

  /** Resolves when no delivery of this lane is running. */
  async atRest(): Promise<void> {
    await this.#work;
  }

  /** Looks again whether there is something to do. */
  wake(): void {
    this.#wake();
  }

  /** The partition is not ours any more. */
  die(reason: IdempotencyError): void {
    if (this.isDead) return;
    this.#life.abort(reason);
    this.#interrupt.abort(reason);
    this.#delivery.abort(this, reason);
    this.wake();
  }

  /** Lets the delivery at hand end, without another try, and begins nothing more. */
  finish(): void {
    this.hold();
    this.#interrupt.abort();
    this.wake();
  }

  async #run(): Promise<void> {
    while (!this.isDead) {
      const record = this.#queue[0];
      if (record === undefined) this.stopped ??= this.#obstacle;
      if (record === undefined || !this.mayBegin) {
        await this.#untilWoken();
        continue;
      }
      this.lastActiveAt = performance.now();
      const work = this.#delivery.deliver(record, this);
      this.#work = work;
      const settlement = await work.catch((error: unknown) => this.#stop(record, error));
      this.#work = undefined;
      this.lastActiveAt = performance.now();
      if (settlement === undefined) continue; // interrupted: the record stays in front
      this.#queue.shift();
      this.#queuedBytes -= record.bytes;
      this.ledger.settle(record.offset, settlement);
      this.#host.settled();
      if (this.#queue.length === 0) this.#host.ranDry();
    }
  }

  /** Nothing of ours should throw there. If it does, the record stays in front where health can see it, and the process lives on. */
  #stop(record: ConsumedRecord, cause: unknown): undefined {
    const where = `${this.topic}[${this.partition}]@${record.offset}`;
    this.stopped = new IdempotencyError(
      'HANDLER_FAILED',
      `The partition stops in front of ${where}: its delivery itself failed (${noteOf(cause, new Date()).message})`,
      { cause },
    );
    new Logger('IdempotentKafkaServer').error(this.stopped.message);
    return undefined;
  }

  #untilWoken(): Promise<void> {
    return new Promise((resolve) => {
      this.#wake = () => {
        this.#wake = () => {};
        resolve();
      };
    });
  }
}
