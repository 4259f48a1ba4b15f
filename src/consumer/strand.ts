import { Logger } from '@nestjs/common';
import { IdempotencyError } from '../shared/errors.js';
import { noteOf } from '../shared/failed-attempt.js';
import type { PartitionParking } from '../shared/parking.js';
import type { TopicPartition } from '../kafka/positions.js';
import type { ConsumedRecord } from './consumed-record.js';
import type { GroupDelivery, GroupEnd, GroupWork } from './group-delivery.js';
import { GroupPlan } from './group-plan.js';
import type { Ahead, KafkaEnd, RecordDelivery, Retrying, Settled } from './record-delivery.js';

/** What a strand asks of its lane. */
export interface StrandLane extends TopicPartition {
  readonly parking: PartitionParking;
  readonly kafka: KafkaEnd | undefined;
  readonly interrupted: AbortSignal;
  readonly isDead: boolean;
  stopped: IdempotencyError | undefined;
  mark(offset: bigint): Promise<void> | undefined;
  mayBegin(strand: Strand): boolean;
  /** Looks up what waits, where there is a reason to: resolves when that is done. */
  probe(strand: Strand): Promise<void> | undefined;
  /** The next record, if one may begin. */
  begin(strand: Strand): ConsumedRecord | undefined;
  /** Records in front, the one begun first, at most so many; only that one while a process may have died of what comes first. */
  together(first: ConsumedRecord, most: number): readonly ConsumedRecord[];
  /** What most likely begins as soon as this record, which has begun, is done. */
  follower(record: ConsumedRecord): ConsumedRecord | undefined;
  /** More records may come, and may go together with those that wait. */
  readonly mayGrow: boolean;
  /** As many records as there are settlements are done; without one the first was interrupted. */
  endTogether(records: readonly ConsumedRecord[], settlements: readonly Settled[]): void;
  /** Without a settlement: it was interrupted. */
  end(record: ConsumedRecord, settlement: Settled | undefined): void;
}

/** One of the records that a lane has at work: takes the next that may begin, brings it to its end, and again, for as long as the lane lives. */
export class Strand implements GroupWork {
  retrying: Retrying | undefined;
  ahead: Ahead | undefined;
  #wake: () => void = () => {};
  #isWaiting = false;
  #work: Promise<unknown> | undefined;
  /** Undefined: each record has a transaction of its own. */
  readonly #plan: GroupPlan | undefined;
  readonly #maxWaitMs: number;

  constructor(
    private readonly lane: StrandLane,
    private readonly delivery: RecordDelivery,
    private readonly groups: GroupDelivery,
  ) {
    const size = groups.sizeOf(lane.topic);
    this.#plan = size === 1 ? undefined : new GroupPlan(size);
    this.#maxWaitMs = groups.maxWaitMsOf(lane.topic);
  }

  follower(record: ConsumedRecord): ConsumedRecord | undefined {
    return this.#plan === undefined ? this.lane.follower(record) : undefined;
  }

  get topic(): string {
    return this.lane.topic;
  }
  get partition(): number {
    return this.lane.partition;
  }
  get parking(): PartitionParking {
    return this.lane.parking;
  }
  get kafka(): KafkaEnd | undefined {
    return this.lane.kafka;
  }
  get interrupted(): AbortSignal {
    return this.lane.interrupted;
  }
  get isDead(): boolean {
    return this.lane.isDead;
  }
  get mayBegin(): boolean {
    return this.lane.mayBegin(this);
  }
  get stopped(): IdempotencyError | undefined {
    return this.lane.stopped;
  }
  set stopped(error: IdempotencyError | undefined) {
    this.lane.stopped = error;
  }

  async run(): Promise<void> {
    const { lane } = this;
    while (!lane.isDead) {
      // Not in the middle of a group that a failure has divided: its parts are counted from the first record on.
      const probe = this.#plan?.isDivided === true ? undefined : lane.probe(this);
      if (probe !== undefined) {
        this.#work = Promise.all([probe, this.discardAhead()]);
        await this.#work;
        this.#work = undefined;
        continue;
      }
      const record = lane.begin(this);
      if (this.ahead !== undefined && this.ahead.record !== record) {
        await this.discardAhead();
        if (record === undefined) continue; // it may have been woken meanwhile
      }
      if (record === undefined) {
        await this.#untilWoken();
        continue;
      }
      if (this.#plan !== undefined && this.#plan.next > 1) {
        const records = await this.#gathered(record, this.#plan);
        if (records.length > 1) {
          await this.#together(records, this.#plan);
          continue;
        }
      }
      const work = this.delivery.deliver(record, this);
      this.#work = work;
      const settlement = await work.catch((error: unknown) => this.#stop(record, error));
      this.#work = undefined;
      lane.end(record, settlement);
      if (settlement !== undefined) this.#plan?.done(1);
    }
    await this.discardAhead();
  }

  async discardAhead(): Promise<void> {
    const { ahead } = this;
    this.ahead = undefined;
    await ahead?.delivery.ahead?.discard();
  }

  /** It has a record at hand, and waits until that may begin. */
  get holdsBack(): boolean {
    return this.#isWaiting && this.#work !== undefined;
  }

  /** Resolves when a delivery may begin, or when the lane is interrupted. */
  async untilMayBegin(): Promise<void> {
    while (!this.mayBegin && !this.interrupted.aborted) await this.#untilWoken();
  }

  /** Resolves when no delivery is running here. */
  async atRest(): Promise<void> {
    await this.#work;
  }

  /** Looks again whether there is something to do. */
  wake(): void {
    this.#wake();
  }

  mark(offset: bigint): Promise<void> | undefined {
    return this.lane.mark(offset);
  }

  /** Ends by force what is at work here. */
  kill(error: IdempotencyError): void {
    this.delivery.kill(this, error);
    this.groups.kill(this, error);
  }

  /** Tells the handler at work to stop. */
  abort(reason: IdempotencyError): void {
    this.delivery.abort(this, reason);
    this.groups.abort(this, reason);
  }

  /** What goes together with this record. Where a batch is wanted and is not full, that waits a while for more. */
  async #gathered(record: ConsumedRecord, plan: GroupPlan): Promise<readonly ConsumedRecord[]> {
    const { lane } = this;
    const until = performance.now() + this.#maxWaitMs;
    for (;;) {
      const waiting = lane.together(record, plan.next);
      const records = this.groups.unconcerned(waiting, this);
      const isFull = waiting.length >= plan.next || records.length < waiting.length;
      const restMs = until - performance.now();
      if (isFull || restMs <= 0 || !lane.mayGrow || lane.interrupted.aborted) return records;
      const timer = setTimeout(() => this.wake(), restMs);
      await this.#untilWoken();
      clearTimeout(timer);
    }
  }

  async #together(records: readonly ConsumedRecord[], plan: GroupPlan): Promise<void> {
    const work = this.groups.attempt(records, this);
    this.#work = work;
    const ended: GroupEnd = (await work.catch((error: unknown) => this.#stop(records[0]!, error))) ?? {
      end: 'interrupted',
    };
    this.#work = undefined;
    const tried = records.length;
    switch (ended.end) {
      case 'committed':
        plan.done(ended.settlements.length);
        if (ended.settlements.length < tried) plan.failedAt(0, tried - ended.settlements.length);
        break;
      case 'failed at':
        plan.failedAt(ended.at, tried);
        break;
      case 'failed':
        plan.failed(tried);
        break;
      case 'busy':
        plan.oneByOne(tried);
        break;
      case 'again':
      case 'interrupted':
        break;
    }
    this.lane.endTogether(records, ended.end === 'committed' ? ended.settlements : []);
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
      this.#isWaiting = true;
      this.#wake = () => {
        this.#wake = () => {};
        this.#isWaiting = false;
        resolve();
      };
    });
  }
}
