import { setTimeout as sleep } from 'node:timers/promises';
import { backoffMs, type Backoff } from '../shared/backoff.js';
import { DeliveryInProgress, type DeliveryReport } from '../shared/delivery.js';
import { IdempotencyError, type ErrorCode } from '../shared/errors.js';
import type { EmitEvent } from '../shared/events.js';
import { HISTORY_ENTRIES, noteOf } from '../shared/failed-attempt.js';
import type { FailedAttempt, ParkReason, PartitionParking } from '../shared/parking.js';
import { errorChain } from '../shared/sql-state.js';
import type { TopicPartition } from '../kafka/positions.js';
import type { ConsumedRecord } from './consumed-record.js';
import type { DeliveryAttempts } from './delivery-attempts.js';
import { DeliveryLog, errorOf, textOf } from './delivery-log.js';
import { failureOf, type Failure } from './failure-policy.js';
import type { HandlerTable, RegisteredHandler } from './handler-table.js';
import { nextStep, type NextStep } from './next-step.js';
import type { Outage } from './outage.js';
import { requestOf } from './replies.js';
import type { Slots } from './slots.js';

/** Between tries to park, or to look at what is parked: for as long as it takes, since the record is not final before. */
const PARKING_RETRY: Backoff = { delayMs: 200, factor: 2, maxDelayMs: 10_000, jitter: 'none' };
/** Where it is the database that is away: it shall not be waited for longer than for the probe of an outage. */
const DATABASE_RETRY_MS = 1000;

/** Why a record still stands in front of its partition. */
export interface Retrying {
  readonly since: Date;
  readonly code: ErrorCode;
  readonly detail: string;
}

/** The delivery of the record that comes next, made before the one in front of it is committed. */
export interface Ahead {
  readonly record: ConsumedRecord;
  readonly delivery: DeliveryInProgress;
}

/** The lane a record is delivered for. */
export interface LaneWork extends TopicPartition {
  readonly parking: PartitionParking;
  /** Before the first record that runs after an assignment. */
  mark(offset: bigint): Promise<void> | undefined;
  /** Aborts when the record shall not be tried again here. */
  readonly interrupted: AbortSignal;
  readonly mayBegin: boolean;
  untilMayBegin(): Promise<void>;
  wake(): void;
  retrying: Retrying | undefined;
  stopped: IdempotencyError | undefined;
  /** What begins as soon as this record is done; undefined: something else may come in between. */
  follower(record: ConsumedRecord): ConsumedRecord | undefined;
  ahead: Ahead | undefined;
  /** Nothing of what was begun in front may wait: it holds a connection and a claim. */
  discardAhead(): Promise<void>;
}

export interface RecordDeliveryParts {
  readonly handlers: HandlerTable;
  readonly attempts: DeliveryAttempts;
  readonly slots: Slots;
  readonly outage: Outage;
  readonly jsonDepth: number;
  readonly emit: EmitEvent;
  /** How often the database was seen to begin anew. What it had acknowledged and not yet written to its disk is gone then. */
  readonly restarts: { readonly count: number };
}

/** A record, or one handler's part in it, is final. */
export interface Settled {
  /** It had been handled before, by every handler. */
  readonly duplicate: boolean;
  /** What handled it is on the database's disk. */
  readonly durable: boolean;
}

const PARKED: Settled = { duplicate: false, durable: true };

interface Work {
  readonly handler: RegisteredHandler;
  readonly record: ConsumedRecord;
  readonly lane: LaneWork;
}

/** What has been tried of one record by one handler. */
interface Tried {
  failed: number;
  reruns: number;
  readonly failures: FailedAttempt[];
}

/**
 * Brings one record to all handlers of its topic, each until it is settled:
 * - every attempt of every handler gets a fresh copy of the raw bytes;
 * - a failing record stays in front until its attempts are used up; then it is parked for that handler, and only then final;
 * - handlers that are done with the record do not run again;
 * - an outage of the database counts for nothing and parks nothing.
 */
export class RecordDelivery {
  readonly #log: DeliveryLog;

  constructor(private readonly parts: RecordDeliveryParts) {
    this.#log = new DeliveryLog(parts.emit);
  }

  /** Resolves when the record is final, or with undefined if the lane was interrupted before. Never rejects. */
  async deliver(record: ConsumedRecord, lane: LaneWork): Promise<Settled | undefined> {
    const handlers = this.#handlersOf(record);
    if (handlers.length === 0) {
      lane.stopped = new IdempotencyError(
        'NO_HANDLER',
        `No handler matches topic ${record.topic}, so its partition ${record.partition} stops in front of offset ${record.offset}`,
      );
      this.#log.stopped(lane.stopped);
      return undefined;
    }
    for (;;) {
      const { count } = this.parts.restarts;
      const settled = await this.#byAll(handlers, record, lane);
      // If the database began anew meanwhile, a part of it may be gone: the claims decide.
      if (settled === undefined || settled.durable || this.parts.restarts.count === count) return settled;
      await lane.discardAhead();
    }
  }

  async #byAll(
    handlers: readonly RegisteredHandler[],
    record: ConsumedRecord,
    lane: LaneWork,
  ): Promise<Settled | undefined> {
    let [duplicate, durable] = [true, true];
    for (const handler of handlers) {
      const work = { handler, record, lane };
      const settled = await (lane.parking.hasParked ? this.#throughGate(work) : this.#untilSettled(work));
      if (settled === undefined) return undefined;
      lane.retrying = undefined;
      duplicate &&= settled.duplicate;
      durable &&= settled.durable;
    }
    return { duplicate, durable };
  }

  /** Tells the handler that works for this lane to stop; its transaction may still commit. */
  abort(lane: LaneWork, reason: IdempotencyError): void {
    this.parts.attempts.abort(lane, reason);
  }

  /** Ends by force what runs for this lane. */
  kill(lane: LaneWork, error: IdempotencyError): void {
    this.parts.attempts.kill(lane, error);
  }

  /** Event handlers always run; a request handler only for a request, or alone as Nest does it. */
  #handlersOf(record: ConsumedRecord): readonly RegisteredHandler[] {
    const all = this.parts.handlers.handlersOf(record.topic);
    const events = all.filter((handler) => handler.isEventHandler);
    return events.length > 0 && requestOf(record.message) === undefined ? events : all;
  }

  /** What was parked before may stand in the way of this record: an earlier event of its key, or the record itself. */
  async #throughGate(work: Work): Promise<Settled | undefined> {
    const { handler, record, lane } = work;
    const { consumer, settings } = handler.profile;
    const eventId = handler.profile.eventIdOf(record.view(settings.decode, this.parts.jsonDepth));
    const request = { record: record.stored, consumer, eventId, holdKey: settings.holdKey };
    let asked = lane.parking.gate(request);
    if (asked === undefined) return this.#untilSettled(work);
    const verdict = await this.#persist(work, async () => {
      const answer = asked ?? lane.parking.gate(request);
      asked = undefined;
      return (await answer) ?? 'run';
    });
    switch (verdict) {
      case 'run':
        return this.#untilSettled(work);
      case 'held':
        this.#log.parked(consumer, record, { state: 'held', reason: 'behind', attempt: 0, eventId });
        return PARKED;
      case 'parked':
        this.#log.parkedBefore(consumer, record);
        return PARKED;
      case undefined:
        return undefined;
    }
  }

  async #untilSettled(work: Work): Promise<Settled | undefined> {
    const { handler, record, lane } = work;
    const tried: Tried = { failed: 0, reruns: 0, failures: [] };
    for (;;) {
      const slots = this.#tryBegin(lane) || (await this.begin(lane));
      if (slots === 0) return undefined;
      const delivery = this.#takeAhead(work) ?? this.#newDelivery(work, tried.failed + 1);
      delivery.beforeRun = () => lane.mark(record.offset);
      delivery.successor = () => this.#successor(work);
      const report = await this.parts.attempts.run(handler, record, { delivery, on: lane });
      this.parts.slots.release(slots);
      if (delivery.ahead !== undefined) await delivery.ahead.discard(); // its interceptor was not reached
      const step = this.#decide(work, delivery, { report, tried });
      switch (step.step) {
        case 'settle':
          return settledBy(delivery, step);
        case 'park':
          return this.#park(work, delivery, { reason: step.reason, error: errorOf(report), tried });
        case 'again':
          await pause(step.delayMs, lane);
      }
    }
  }

  #newDelivery({ handler, record }: Work, attempt: number): DeliveryInProgress {
    const { consumer, settings } = handler.profile;
    return new DeliveryInProgress(record.view(settings.decode, this.parts.jsonDepth), consumer, attempt);
  }

  /** The delivery of the record behind this one, if nothing but that comes next: one handler, nothing parked, nobody who waits for its slot. */
  #successor({ handler, record, lane }: Work): DeliveryInProgress | undefined {
    const next = lane.parking.hasParked || this.parts.slots.isWanted ? undefined : lane.follower(record);
    const isPlain = handler.profile.idempotent && handler.profile.batch === undefined && handler.isEventHandler;
    if (next === undefined || !isPlain || this.#handlersOf(next).length > 1) return undefined;
    const delivery = this.#newDelivery({ handler, record: next, lane }, 1);
    lane.ahead = { record: next, delivery };
    return delivery;
  }

  #takeAhead({ record, lane }: Work): DeliveryInProgress | undefined {
    if (lane.ahead?.record !== record) return undefined;
    const { delivery } = lane.ahead;
    lane.ahead = undefined;
    return delivery;
  }

  /** Takes the slots of a delivery, and says how many; 0: it may not begin now. Where a process may have died of what comes first, that runs alone. */
  #tryBegin(lane: LaneWork): number {
    const need = lane.parking.isSuspect ? this.parts.slots.size : 1;
    return lane.mayBegin && !lane.interrupted.aborted && this.parts.slots.tryAcquire(need) ? need : 0;
  }

  /** Waits until a delivery may begin, and says how many slots it took; 0: interrupted. */
  async begin(lane: LaneWork): Promise<number> {
    const { slots } = this.parts;
    await lane.discardAhead();
    while (!lane.interrupted.aborted) {
      if (!lane.mayBegin) await lane.untilMayBegin();
      const need = lane.parking.isSuspect ? slots.size : 1;
      if (!(await slots.acquire(lane.interrupted, need))) return 0;
      if (lane.mayBegin) return need;
      slots.release(need); // an outage, a pause or a silent broker began while it waited
    }
    return 0;
  }

  #decide(
    work: Work,
    delivery: DeliveryInProgress,
    { report, tried }: { report: DeliveryReport; tried: Tried },
  ): NextStep {
    const { retry, classify } = work.handler.profile.settings;
    const failure = report.outcome === 'failed' ? failureOf(report, classify, delivery) : undefined;
    if (!work.lane.interrupted.aborted) this.#tellOutage(delivery, report, failure);
    if (report.outcome === 'processed' || (report.outcome === 'failed' && failure?.kind !== 'infrastructure'))
      work.lane.parking.survived();
    const counted = failure === undefined || failure.kind === 'infrastructure' ? 0 : 1;
    const step = nextStep(report, failure, { failed: tried.failed + counted, reruns: tried.reruns }, retry);
    if (step.step === 'settle') return step;
    if (step.step === 'park' || step.counts) {
      tried.failed += 1;
      tried.reruns = 0;
      tried.failures.push(noteOf(errorOf(report), new Date()));
      if (tried.failures.length > HISTORY_ENTRIES) tried.failures.shift();
    } else if (failure?.kind === 'transient') {
      tried.reruns += 1;
    }
    const detail = this.#log.unsettled(delivery, report, step);
    work.lane.retrying = { since: work.lane.retrying?.since ?? new Date(), code: 'HANDLER_RETRYING', detail };
    return step;
  }

  async #park(
    work: Work,
    delivery: DeliveryInProgress,
    { reason, error, tried }: { reason: ParkReason; error: unknown; tried: Tried },
  ): Promise<Settled | undefined> {
    const { handler, record, lane } = work;
    const { consumer, settings } = handler.profile;
    const { failed: attempts, failures } = tried;
    const { eventId } = delivery;
    const { holdKey, redelivery } = settings;
    const request = {
      record: record.stored,
      consumer,
      eventId,
      reason,
      error,
      failures,
      attempts,
      holdKey,
      redelivery,
    };
    const state = await this.#persist(work, () => lane.parking.park(request));
    if (state === undefined) return undefined;
    this.#log.parked(consumer, record, { state, reason, error, attempt: delivery.attempt, eventId });
    return PARKED;
  }

  /** As long as it takes; undefined once the lane is interrupted, for then the record is another's. */
  async #persist<T>(work: Work, action: () => Promise<T>): Promise<T | undefined> {
    const { lane, record, handler } = work;
    for (let tries = 1; !lane.interrupted.aborted; tries += 1) {
      try {
        const done = await action();
        this.parts.outage.passed();
        return done;
      } catch (error) {
        const code = IdempotencyError.is(error) ? error.code : 'PARK_FAILED';
        const isDatabase = isDatabaseAway(error);
        if (isDatabase && !lane.interrupted.aborted) this.parts.outage.suffered(textOf(error));
        const delayMs = isDatabase ? DATABASE_RETRY_MS : backoffMs(PARKING_RETRY, tries);
        const detail = this.#log.notParked(handler.profile.consumer, record, { code, error, delayMs });
        lane.retrying = { since: lane.retrying?.since ?? new Date(), code, detail };
        await pause(delayMs, lane);
      }
    }
    return undefined;
  }

  /** Only what the database has answered tells that it is there: not a handler without a transaction, a decoding error or a timeout. */
  #tellOutage(delivery: DeliveryInProgress, report: DeliveryReport, failure: Failure | undefined): void {
    if (failure?.kind === 'infrastructure') {
      if (failure.of === 'database') this.parts.outage.suffered(textOf(errorOf(report)));
    } else if (report.outcome === 'busy' || (delivery.hasTransaction && report.outcome !== 'unknown')) {
      if (!IdempotencyError.is(errorOf(report), 'HANDLER_TIMEOUT')) this.parts.outage.passed();
    }
  }
}

/** Nobody knows how the transaction was committed that made a record a duplicate. */
export function settledBy({ durability }: DeliveryInProgress, { duplicate }: { readonly duplicate: boolean }): Settled {
  return { duplicate, durable: !duplicate && durability === 'commit' };
}

/** Interrupted, it ends at once: the caller looks. */
async function pause(ms: number, { interrupted }: LaneWork): Promise<void> {
  await sleep(ms, undefined, { signal: interrupted }).catch(() => undefined); // the abort is all it can be
}

function isDatabaseAway(error: unknown): boolean {
  return errorChain(error).some((link) => IdempotencyError.is(link, 'DATABASE_UNAVAILABLE'));
}
