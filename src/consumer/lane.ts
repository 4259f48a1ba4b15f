import { IdempotencyError } from '../shared/errors.js';
import type { PartitionParking } from '../shared/parking.js';
import type { FetchedBatch } from '../kafka/group-client.js';
import type { TopicPartition } from '../kafka/positions.js';
import { ConsumedRecord, keyOf } from './consumed-record.js';
import type { DuplicateProbe } from './duplicate-probe.js';
import type { GroupDelivery } from './group-delivery.js';
import { KeyQueues } from './key-queues.js';
import type { LaneTransactions } from './lane-transactions.js';
import type { OffsetLedger } from './offset-ledger.js';
import { ProbePlan } from './probe-plan.js';
import type { KafkaEnd, RecordDelivery, Retrying, Settled } from './record-delivery.js';
import { Strand, type StrandLane } from './strand.js';

/** What a lane asks of its group membership. */
export interface LaneHost {
  /** Somebody else has moved the group's offset of this partition. */
  outrun(lane: Lane): void;
  /** False while nothing may begin: heartbeats are missing, the topic is paused by the user, the consumer drains. */
  mayStart(lane: Lane, strand: Strand): boolean;
  /** One record of it or more are final. */
  settled(lane: Lane): void;
  /** Nothing is left to do. */
  ranDry(): void;
}

export interface LaneParts {
  readonly place: TopicPartition;
  readonly ledger: OffsetLedger;
  readonly parking: PartitionParking;
  readonly host: LaneHost;
  readonly delivery: RecordDelivery;
  readonly groups: GroupDelivery;
  readonly probe: DuplicateProbe;
  /** How many records may be at work at once, each of another key. 1: one after another, whatever their keys are. */
  readonly keys: number;
  /** Undefined: what is made of its records is in no Kafka transaction. */
  readonly transactions: LaneTransactions | undefined;
  /** Of the lane that had this partition earlier in this process. */
  readonly predecessor: Promise<void>;
}

/**
 * The records of one assigned partition, those of one key in order, and of all of them if no more than one key may be at work:
 * - what waits here was fetched from `ledger.next` on without a hole;
 * - nothing begins before the lane that had this partition earlier in this process has ended;
 * - a dead lane begins nothing more; what it is doing may end, and the claim keeps that harmless;
 * - where a process died, as many records as may have been at work in it run one by one, so that the next death blames the right one.
 */
export class Lane implements StrandLane {
  readonly topic: string;
  readonly partition: number;
  readonly ledger: OffsetLedger;
  readonly parking: PartitionParking;
  readonly kafka: KafkaEnd | undefined;
  /** Resolves when the lane is dead and its deliveries have ended, or were left behind at their timeouts. */
  readonly ended: Promise<void>;
  /** Fetching is paused because the lane is full. */
  full = false;
  stopped: IdempotencyError | undefined;
  /** When a record last began or ended here, or the lane was opened; by performance.now(). */
  lastActiveAt = performance.now();
  since = new Date();

  readonly #host: LaneHost;
  readonly #transactions: LaneTransactions | undefined;
  readonly #strands: readonly Strand[];
  readonly #records: KeyQueues<ConsumedRecord>;
  #queuedBytes = 0;
  /** So many more run one by one. */
  #alone: number;
  #obstacle: IdempotencyError | undefined;
  readonly #probe: DuplicateProbe;
  /** Undefined: none of the topic is looked up. */
  readonly #probing: ProbePlan | undefined;
  #isProbing = false;
  /** Up to here everything was looked up, or cannot be. */
  #probedTo = -1n;
  #held = true;
  #marks = true;
  readonly #life = new AbortController();
  readonly #interrupt = new AbortController();

  constructor({ place, predecessor, keys, ...parts }: LaneParts) {
    this.topic = place.topic;
    this.partition = place.partition;
    this.ledger = parts.ledger;
    this.parking = parts.parking;
    this.#host = parts.host;
    const { transactions } = parts;
    this.#transactions = transactions;
    this.kafka = transactions && { commit: (deliveries, offset) => transactions.commit(deliveries, offset, this) };
    this.#probe = parts.probe;
    this.#probing = parts.probe.isFor(this.topic) ? new ProbePlan() : undefined;
    const size = parts.groups.sizeOf(this.topic);
    const atOnce = Math.max(keys, size);
    // Keys that share a transaction are at work at once inside of it, and it is made of consecutive records.
    const strands = size > 1 || transactions !== undefined ? 1 : keys;
    this.#alone = atOnce > 1 && parts.parking.isSuspect ? atOnce : 0;
    this.#records = new KeyQueues(strands > 1 ? keyOf : () => undefined);
    this.#strands = Array.from({ length: strands }, () => new Strand(this, parts.delivery, parts.groups));
    this.ended = predecessor.then(async () => {
      await Promise.all(this.#strands.map((strand) => strand.run()));
    });
  }

  /** Records between the lowest unfinished and the newest: what is finished before its predecessors counts too, for it would come again after a crash. */
  get queued(): number {
    return this.ledger.pending;
  }
  get queuedBytes(): number {
    return this.#queuedBytes;
  }
  get isDead(): boolean {
    return this.#life.signal.aborted;
  }
  /** Records are being looked up, or one is being delivered, tried again, or waits for a slot. */
  get isWorking(): boolean {
    return this.#isProbing || this.#records.begun > 0;
  }
  /** The record that has been failing for the longest time. */
  get retrying(): Retrying | undefined {
    let longest: Retrying | undefined;
    for (const { retrying } of this.#strands)
      if (retrying !== undefined && (longest === undefined || retrying.since < longest.since)) longest = retrying;
    return longest;
  }
  /** Nothing more can be read, or nothing more begins. */
  get isBlocked(): boolean {
    return this.stopped !== undefined || this.#obstacle !== undefined;
  }
  get isIdle(): boolean {
    return this.#records.size === 0;
  }

  get mayGrow(): boolean {
    return !this.full && this.#alone === 0;
  }

  /** Aborts when what is at hand shall not be tried again here: the lane died or the consumer drains. */
  get interrupted(): AbortSignal {
    return this.#interrupt.signal;
  }

  /** Takes a batch, which has to begin where the lane ends. */
  accept(batch: FetchedBatch): void {
    for (const message of batch.messages) {
      const record = new ConsumedRecord(this.topic, this.partition, message);
      this.#records.push(record);
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

  /** Those that may try whether the database is back: with a record at hand, else one that would take the next. */
  get probers(): readonly Strand[] {
    const holding = this.#strands.filter((strand) => strand.holdsBack);
    return holding.length > 0 ? holding : this.#strands.slice(0, 1);
  }

  /** It has something to deliver, and nothing of its own keeps it from that. */
  get isReady(): boolean {
    return !this.#held && !this.isDead && this.stopped === undefined && !this.isIdle;
  }

  /** Whether a delivery may begin: the first of a record, a further try, or that of its next handler. */
  mayBegin(strand: Strand): boolean {
    return !this.#held && this.stopped === undefined && this.#host.mayStart(this, strand);
  }

  begin(strand: Strand): ConsumedRecord | undefined {
    if (this.isIdle) this.stopped ??= this.#obstacle;
    if (this.#isProbing || (this.#alone > 0 && this.isWorking)) return undefined;
    if (this.isIdle || !this.mayBegin(strand)) return undefined;
    this.lastActiveAt = performance.now();
    return this.#records.begin();
  }

  /** Meanwhile nothing begins here: what is looked up shall not be at work as well, and what is missing keeps its place. */
  probe(strand: Strand): Promise<void> | undefined {
    const { first } = this.#records;
    const most = this.#probing?.next ?? 0;
    if (most === 0 || this.#isProbing || first === undefined || first.offset <= this.#probedTo) return undefined;
    return this.mayBegin(strand) ? this.#lookUp(this.#records.waiting(most, this.#probedTo), strand) : undefined;
  }

  async #lookUp(waiting: readonly ConsumedRecord[], strand: Strand): Promise<void> {
    this.#isProbing = true;
    this.lastActiveAt = performance.now();
    const probed = await this.#probe.run(waiting, strand);
    this.#isProbing = false;
    this.lastActiveAt = performance.now();
    if (probed === undefined) {
      this.#probing?.giveUp();
    } else {
      this.#probing?.probed(probed.asked, probed.duplicates.length);
      this.#probedTo = waiting[Math.max(probed.asked, 1) - 1]!.offset;
      this.#skip(probed.duplicates);
    }
    this.wake();
  }

  #skip(duplicates: readonly ConsumedRecord[]): void {
    if (duplicates.length === 0) return;
    this.#records.drop(duplicates);
    for (const record of duplicates) {
      this.#queuedBytes -= record.bytes;
      this.ledger.settle(record.offset, { durable: false });
    }
    this.#host.settled(this);
    if (this.isIdle) this.#host.ranDry();
  }

  together(first: ConsumedRecord, most: number): readonly ConsumedRecord[] {
    return this.#alone > 0 ? [first] : [first, ...this.#records.behind(first, most - 1)];
  }

  /** Of a lane with several strands another one may take it. */
  follower(record: ConsumedRecord): ConsumedRecord | undefined {
    return this.#strands.length === 1 ? this.#records.behind(record, 1)[0] : undefined;
  }

  endTogether(records: readonly ConsumedRecord[], settlements: readonly Settled[]): void {
    if (settlements.length === 0) return this.end(records[0]!, undefined);
    this.#records.endWith(records[0]!, settlements.length - 1);
    for (let at = 0; at < settlements.length; at += 1) this.#settle(records[at]!, settlements[at]!);
    this.#tellSettled();
  }

  end(record: ConsumedRecord, settlement: Settled | undefined): void {
    if (settlement === undefined) {
      this.lastActiveAt = performance.now();
      this.#records.putBack(record);
      return;
    }
    this.#records.end(record);
    this.#settle(record, settlement);
    this.#tellSettled();
  }

  #settle(record: ConsumedRecord, settlement: Settled): void {
    this.#queuedBytes -= record.bytes;
    this.ledger.settle(record.offset, settlement);
    if (record.offset > this.#probedTo) this.#probing?.settled(settlement);
    if (this.#alone > 0 && !settlement.duplicate) this.#ranAlone();
  }

  #tellSettled(): void {
    this.lastActiveAt = performance.now();
    this.#host.settled(this);
    if (this.isIdle) this.#host.ranDry();
  }

  /** By an offset read behind the last fence it stands where the group does: what it has made may be committed. */
  admit(): void {
    this.#transactions?.admit(this);
  }

  /** Writes the group's offset, if that is this lane's to write. */
  async flush(): Promise<void> {
    await this.#transactions?.flush(this);
  }

  outrun(): void {
    this.#host.outrun(this);
  }

  /** Resolves when no delivery of this lane is running. */
  async atRest(): Promise<void> {
    await Promise.all(this.#strands.map((strand) => strand.atRest()));
  }

  /** Looks again whether there is something to do. */
  wake(): void {
    for (const strand of this.#strands) strand.wake();
  }

  /** The partition is not ours any more. */
  die(reason: IdempotencyError): void {
    if (this.isDead) return;
    this.#life.abort(reason);
    this.#interrupt.abort(reason);
    for (const strand of this.#strands) strand.abort(reason);
    this.wake();
  }

  /** Ends by force what is at work. */
  kill(error: IdempotencyError): void {
    for (const strand of this.#strands) strand.kill(error);
  }

  /** Lets the deliveries at hand end, without another try, and begins nothing more. */
  finish(): void {
    this.hold();
    this.#interrupt.abort();
    this.wake();
  }

  #ranAlone(): void {
    this.#alone -= 1;
    if (this.#alone === 0) this.wake();
  }
}
