import { setTimeout as sleep } from 'node:timers/promises';
import { Logger } from '@nestjs/common';
import { BatchDelivery } from '../shared/batch-delivery.js';
import type { DeliveryInProgress, DeliveryReport } from '../shared/delivery.js';
import type { IdempotencyError } from '../shared/errors.js';
import { noteOf } from '../shared/failed-attempt.js';
import type { SharedTransaction, SharedTransactions } from '../shared/shared-transaction.js';
import { blamedPlace } from './batch-failure.js';
import type { ConsumedRecord } from './consumed-record.js';
import { ExactlyOnceGroup } from './exactly-once-group.js';
import type { RegisteredHandler } from './handler-table.js';
import { firstToBlame, runInterleaved, type FailedRecord } from './interleaved-run.js';
import { newDelivery } from './new-delivery.js';
import {
  settledBy,
  type LaneWork,
  type RecordDelivery,
  type RecordDeliveryParts,
  type Settled,
} from './record-delivery.js';

const UNKNOWN_MS = 50;

export interface GroupDeliveryParts extends RecordDeliveryParts {
  readonly shared: SharedTransactions;
  readonly delivery: RecordDelivery;
  /** How many keys may be at work at once in one transaction. 1: its records run one after another. */
  readonly keys: number;
}

/** The lane a group is delivered for. */
export interface GroupWork extends LaneWork {
  readonly isDead: boolean;
}

/** How an attempt of a group ended. Nothing of it is final unless it was committed, and then of as many records as there are settlements. */
export type GroupEnd =
  | { readonly end: 'committed'; readonly settlements: readonly Settled[] }
  | { readonly end: 'failed at'; readonly at: number }
  | { readonly end: 'failed' | 'busy' | 'again' | 'interrupted' };

const PROCESSED: DeliveryReport = { outcome: 'processed' };
const DUPLICATE: DeliveryReport = { outcome: 'duplicate' };
const INTERRUPTED: GroupEnd = { end: 'interrupted' };
const AGAIN: GroupEnd = { end: 'again' };
/** What takes the first record out: it goes its own way. */
const FIRST: GroupEnd = { end: 'failed at', at: 0 };

interface Group {
  readonly records: readonly ConsumedRecord[];
  readonly handlers: readonly RegisteredHandler[];
  readonly lane: GroupWork;
}

/** A group that is being tried: the deliveries of each record, in the order of the handlers. */
interface Attempt extends Group {
  readonly deliveries: readonly (readonly DeliveryInProgress[])[];
  readonly shared: SharedTransaction;
}

/** Of a group whose records are at work at once. */
interface Progress {
  ran: number;
  readonly failed: FailedRecord[];
  /** What they are run for. */
  readonly atWork: Set<object>;
}

/**
 * Consecutive records in one transaction, each to every handler of their topic, in order, and then to each that takes batches, all at once:
 * - one attempt; what fails in it fails no event: the record runs again by itself, and that counts;
 * - it ends in front of a record that something parked may concern, and of one without an event id;
 * - it begins as a single delivery does, in one slot;
 * - with several keys, records of different keys are at their handlers at once, and of those that fail only what failed by itself is blamed.
 */
export class GroupDelivery {
  readonly #logger = new Logger('IdempotentKafkaServer');
  readonly #sizes = new Map<string, number>();
  /** Of each lane with records at work at once, what they are run for. */
  readonly #apart = new Map<GroupWork, Set<object>>();

  constructor(private readonly parts: GroupDeliveryParts) {}

  /** How many records of the topic may share a transaction. */
  sizeOf(topic: string): number {
    let size = this.#sizes.get(topic);
    if (size === undefined) {
      const handlers = this.parts.handlers.handlersOf(topic);
      const wanted = handlers.map(({ profile }) => profile.settings.messagesPerTransaction);
      size = canShare(handlers) ? Math.min(...wanted) : 1;
      if (wanted.some((one) => one > size!)) this.#tellSmaller(topic, size, handlers);
      this.#sizes.set(topic, size);
    }
    return size;
  }

  /** How long a group that is not full may wait for more records of the topic. */
  maxWaitMsOf(topic: string): number {
    const waits = this.parts.handlers.handlersOf(topic).flatMap(({ profile }) => profile.batch?.maxWaitMs ?? []);
    return waits.length === 0 ? 0 : Math.min(...waits);
  }

  /** Those in front that nothing parked may concern: what it does goes its own way. */
  unconcerned(waiting: readonly ConsumedRecord[], lane: LaneWork): readonly ConsumedRecord[] {
    if (!lane.parking.hasParked) return waiting;
    const handlers = this.parts.handlers.handlersOf(lane.topic);
    const concerned = waiting.findIndex((record) => isConcerned(record, handlers, lane));
    return concerned === -1 ? waiting : waiting.slice(0, concerned);
  }

  /** Never rejects. */
  async attempt(records: readonly ConsumedRecord[], lane: GroupWork): Promise<GroupEnd> {
    const handlers = this.parts.handlers.handlersOf(lane.topic);
    let slots = await this.parts.delivery.begin(lane);
    if (slots === 0) return INTERRUPTED;
    const release = () => {
      this.parts.slots.release(slots);
      slots = 0;
    };
    try {
      return await this.#attempt({ records, handlers, lane }, release);
    } finally {
      release();
    }
  }

  /** Tells the handlers that are at work at once for this lane to stop. */
  abort(lane: GroupWork, reason: IdempotencyError): void {
    for (const on of this.#apart.get(lane) ?? []) this.parts.attempts.abort(on, reason);
  }

  /** Ends by force what is at work at once for this lane. */
  kill(lane: GroupWork, error: IdempotencyError): void {
    for (const on of this.#apart.get(lane) ?? []) this.parts.attempts.kill(on, error);
  }

  /** `release`: gives its slots back, in front of what needs no connection. */
  async #attempt(group: Group, release: () => void): Promise<GroupEnd> {
    const { lane } = group;
    const { count } = this.parts.restarts;
    const deliveries = group.records.map((record) => this.#deliveriesOf(record, group));
    const { kafka } = lane;
    const interleaved = this.parts.keys > 1 && kafka === undefined;
    const shared =
      kafka === undefined
        ? this.parts.shared.over(deliveries, { interleaved })
        : new ExactlyOnceGroup(deliveries, kafka);
    for (const ofRecord of deliveries) for (const delivery of ofRecord) delivery.shared = shared;
    const attempt = { ...group, deliveries, shared };
    const stopped = interleaved
      ? await this.#runAtOnce(attempt)
      : ((await this.#runEach(attempt)) ?? (await this.#runBatches(attempt)));
    if (stopped !== undefined) {
      await shared.rollback();
      return stopped;
    }
    if (kafka !== undefined) release();
    const ended = await shared.commit();
    if (ended.kind === 'committed') {
      lane.retrying = undefined;
      if (kafka === undefined) this.parts.outage.passed();
      if (deliveries.some((ofRecord) => ofRecord.some(({ reported }) => reported?.outcome === 'processed')))
        lane.parking.survived();
      const settlements = deliveries.slice(0, shared.size).map(settlementOf);
      // If the database began anew meanwhile, all of it may be gone: the claims decide.
      const isSure = this.parts.restarts.count === count || settlements.every(({ durable }) => durable);
      return isSure ? { end: 'committed', settlements } : AGAIN;
    }
    this.#tell(group, `was not committed`, ended.error);
    if (ended.kind === 'refused') return ended.isOutage ? FIRST : { end: 'failed' };
    const detail = `nobody knows how a transaction of ${group.records.length} records was committed, or it was not, so they run again: ${noteOf(ended.error, new Date()).message}`;
    lane.retrying = { since: lane.retrying?.since ?? new Date(), code: 'HANDLER_RETRYING', detail };
    await sleep(UNKNOWN_MS, undefined, { signal: lane.interrupted }).catch(() => undefined); // the caller looks
    return AGAIN;
  }

  /** What stopped it, if something did. */
  async #runEach(group: Attempt): Promise<GroupEnd | undefined> {
    const { records, handlers, lane, deliveries, shared } = group;
    if (handlers.every(({ profile }) => profile.batch !== undefined)) return undefined;
    for (let at = 0; at < shared.size; at += 1) {
      for (const [index, handler] of handlers.entries()) {
        if (handler.profile.batch !== undefined) continue;
        if (lane.isDead) return INTERRUPTED; // nothing begins on a partition that is lost, so what is claimed for it goes too
        const delivery = deliveries[at]![index]!;
        const report = await this.parts.attempts.run(handler, records[at]!, { delivery, on: lane });
        if (report.outcome !== 'processed' && report.outcome !== 'duplicate') return this.#stoppedAt(group, at, report);
      }
    }
    return undefined;
  }

  /** The same, with records of different keys at once. None of their handlers takes batches: that is refused together with keys. */
  async #runAtOnce(group: Attempt): Promise<GroupEnd | undefined> {
    const { records, lane, shared } = group;
    const progress: Progress = { ran: 0, failed: [], atWork: new Set() };
    const { failed } = progress;
    this.#apart.set(lane, progress.atWork);
    await runInterleaved({
      records,
      keys: this.parts.keys,
      run: (at) => this.#runRecord(group, at, progress),
      opened: shared.opened,
      size: () => shared.size,
    });
    this.#apart.delete(lane);
    if (failed.length > 0) {
      const blamed = firstToBlame(failed);
      const [told] = blamed === undefined ? failed : [blamed];
      return this.#stoppedAt(group, blamed?.at, told!.report);
    }
    return progress.ran < shared.size ? INTERRUPTED : undefined;
  }

  /** One record by all its handlers, one after another. Whether it came through. */
  async #runRecord({ records, handlers, lane, deliveries }: Attempt, at: number, progress: Progress): Promise<boolean> {
    for (const [index, handler] of handlers.entries()) {
      if (lane.isDead) return false;
      const delivery = deliveries[at]![index]!;
      progress.atWork.add(delivery);
      const report = await this.parts.attempts.run(handler, records[at]!, { delivery, on: delivery });
      progress.atWork.delete(delivery);
      if (report.outcome === 'processed' || report.outcome === 'duplicate') continue;
      progress.failed.push({ at, report });
      return false;
    }
    progress.ran += 1;
    return true;
  }

  async #runBatches(group: Attempt): Promise<GroupEnd | undefined> {
    for (const [index, handler] of group.handlers.entries()) {
      if (handler.profile.batch === undefined) continue;
      if (group.lane.isDead) return INTERRUPTED;
      const stopped = await this.#runBatch(group, index);
      if (stopped !== undefined) return stopped;
    }
    return undefined;
  }

  async #runBatch(group: Attempt, handlerIndex: number): Promise<GroupEnd | undefined> {
    const { records, handlers, lane, deliveries, shared } = group;
    const all = deliveries.map((ofRecord) => ofRecord[handlerIndex]!);
    const delivery = new BatchDelivery(all, shared);
    delivery.beforeRun = () => lane.mark(BigInt(delivery.offset));
    const report = await this.parts.attempts.runBatch(handlers[handlerIndex]!, records, { delivery, on: lane });
    const fresh = delivery.isClaimed ? delivery.members : undefined;
    if (report.outcome !== 'processed' && report.outcome !== 'duplicate') {
      const error = 'error' in report ? report.error : undefined;
      const at = blamedPlace({ fresh: fresh?.map((one) => all.indexOf(one)), error });
      return this.#stoppedAt(group, at, report);
    }
    const ran = new Set(fresh);
    for (let at = 0; at < shared.size; at += 1) all[at]!.report(ran.has(all[at]!) ? PROCESSED : DUPLICATE);
    return undefined;
  }

  /** `at`: undefined, if nothing tells which of the records is to blame. */
  #stoppedAt(group: Group, at: number | undefined, report: DeliveryReport): GroupEnd {
    if (report.outcome === 'busy') return { end: 'busy' };
    const error = 'error' in report ? report.error : undefined;
    this.#tell(group, at === undefined ? 'failed' : `stopped at offset ${group.records[at]!.offset}`, error);
    const isOutage = report.outcome === 'failed' && report.isOutage === true;
    if (isOutage) return FIRST;
    return at === undefined ? { end: 'failed' } : { end: 'failed at', at };
  }

  #deliveriesOf(record: ConsumedRecord, { handlers, lane }: Group): DeliveryInProgress[] {
    return handlers.map((handler) => {
      const delivery = newDelivery(handler, record, { attempt: 1, jsonDepth: this.parts.jsonDepth });
      if (handler.profile.batch === undefined) delivery.beforeRun = () => lane.mark(record.offset); // a batch has a mark of its own
      return delivery;
    });
  }

  #tell({ records, lane }: Group, what: string, error: unknown): void {
    const { name, message } = noteOf(error, new Date());
    this.#logger.warn(
      `The transaction of ${records.length} records of ${lane.topic}[${lane.partition}] from offset ${records[0]!.offset} on ${what}, and they run again in smaller ones: ${name}: ${message}`,
    );
  }

  #tellSmaller(topic: string, size: number, handlers: readonly RegisteredHandler[]): void {
    const asked = handlers.map(({ profile: { consumer, batch, settings } }) => {
      const most = settings.messagesPerTransaction;
      return `${consumer} (${batch === undefined ? most : `maxSize ${most}`})`;
    });
    const why = canShare(handlers)
      ? 'the smallest counts'
      : 'only @Idempotent() event handlers of one isolation level share a transaction';
    this.#logger.log(`${topic}: messagesPerTransaction is ${size}, of ${asked.join(', ')}: ${why}`);
  }
}

function canShare(handlers: readonly RegisteredHandler[]): boolean {
  const levels = new Set(handlers.map(({ profile }) => profile.settings.isolation));
  const [first] = handlers;
  if (handlers.length === 1 && first!.profile.transaction === 'kafka') return true;
  return (
    levels.size === 1 &&
    handlers.every(({ profile, isEventHandler }) => isEventHandler && profile.transaction === 'database')
  );
}

function isConcerned(record: ConsumedRecord, handlers: readonly RegisteredHandler[], lane: LaneWork): boolean {
  const { stored } = record;
  return handlers.some(({ profile: { consumer, settings } }) =>
    lane.parking.concerns({ record: stored, consumer, holdKey: settings.holdKey }),
  );
}

function settlementOf(deliveries: readonly DeliveryInProgress[]): Settled {
  if (deliveries.length === 1) return settlementBy(deliveries[0]!);
  const parts = deliveries.map(settlementBy);
  return {
    duplicate: parts.every(({ duplicate }) => duplicate),
    durable: parts.every(({ durable }) => durable),
  };
}

function settlementBy(delivery: DeliveryInProgress): Settled {
  return settledBy(delivery, { duplicate: delivery.reported?.outcome === 'duplicate' });
}
