import type { DeliveryInProgress, DeliveryReport } from '../shared/delivery.js';
import { IdempotencyError, type ErrorCode } from '../shared/errors.js';
import type { EmitEvent } from '../shared/events.js';
import { HISTORY_ENTRIES, noteOf } from '../shared/failed-attempt.js';
import type { PartitionParking } from '../shared/parking.js';
import type { SharedEnd } from '../shared/shared-transaction.js';
import type { TopicPartition } from '../kafka/positions.js';
import type { ConsumedRecord } from './consumed-record.js';
import type { DeliveryAttempts } from './delivery-attempts.js';
import { DeliveryLog, errorOf, textOf } from './delivery-log.js';
import { failureOf, type Failure } from './failure-policy.js';
import type { HandlerTable, RegisteredHandler } from './handler-table.js';
import { newDelivery } from './new-delivery.js';
import { nextStep, type NextStep } from './next-step.js';
import type { Outage } from './outage.js';
import { pauseOf, RecordParking, type Tried, type Work } from './record-parking.js';
import { requestOf } from './replies.js';
import type { Slots } from './slots.js';

/** Why a record still stands in front of its partition. */
export interface Retrying {
  readonly since: Date;
  readonly code: ErrorCode;
  readonly detail: string;
}

/** The delivery of the record that comes next, made before the one in front of it is committed. */
export class Ahead {
  constructor(
    readonly record: ConsumedRecord,
    readonly delivery: DeliveryInProgress,
  ) {}
}

/** How the deliveries of a lane end whose handler is exactly-once: what they have published and the offset behind them, in one Kafka transaction. */
export interface KafkaEnd {
  commit(deliveries: readonly DeliveryInProgress[], offset: bigint): Promise<SharedEnd>;
}

/** The lane a record is delivered for. */
export interface LaneWork extends TopicPartition {
  readonly parking: PartitionParking;
  readonly kafka: KafkaEnd | undefined;
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

/**
 * Brings one record to all handlers of its topic, each until it is settled:
 * - every attempt of every handler gets a fresh copy of the raw bytes;
 * - a failing record stays in front until its attempts are used up; then it is parked for that handler, and only then final;
 * - handlers that are done with the record do not run again;
 * - an outage of the database counts for nothing and parks nothing.
 */
export class RecordDelivery {
  readonly #log: DeliveryLog;
  readonly #parking: RecordParking;

  constructor(private readonly parts: RecordDeliveryParts) {
    this.#log = new DeliveryLog(parts.emit);
    this.#parking = new RecordParking(parts, this.#log);
  }

  /** Resolves when the record is final, or with undefined if the lane was interrupted before. Never rejects. */
  async deliver(record: ConsumedRecord, lane: LaneWork): Promise<Settled | undefined> {
    const handlers = this.#handlersOf(record);
    const unfit = handlers.length === 0 ? noHandler(record) : this.parts.handlers.mixed(record.topic);
    if (unfit !== undefined) {
      lane.stopped = unfit;
      this.#log.stopped(unfit);
      return undefined;
    }
    for (;;) {
      const { count } = this.parts.restarts;
      const settled = await this.#byAll(handlers, record, lane);
      if (settled !== undefined) lane.retrying = undefined;
      // If the database began anew meanwhile, a part of it may be gone: the claims decide.
      if (settled === undefined || settled.durable || this.parts.restarts.count === count) return settled;
      await lane.discardAhead();
    }
  }

  #byAll(handlers: readonly RegisteredHandler[], record: ConsumedRecord, lane: LaneWork): Promise<Settled | undefined> {
    const [handler] = handlers;
    const isPlain = handlers.length === 1 && handler !== undefined && !lane.parking.hasParked;
    return isPlain ? this.#untilSettled({ handler, record, lane }) : this.#byEach(handlers, record, lane);
  }

  async #byEach(
    handlers: readonly RegisteredHandler[],
    record: ConsumedRecord,
    lane: LaneWork,
  ): Promise<Settled | undefined> {
    let [duplicate, durable] = [true, true];
    for (const handler of handlers) {
      const work = { handler, record, lane };
      const gated = lane.parking.hasParked ? await this.#parking.gate(work) : 'run';
      const settled = gated === 'run' ? await this.#untilSettled(work) : gated;
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

  async #untilSettled(work: Work): Promise<Settled | undefined> {
    const { handler, record, lane } = work;
    const tried: Tried = { failed: 0, reruns: 0, failures: [] };
    for (;;) {
      const slots = this.#tryBegin(lane) || (await this.begin(lane));
      if (slots === 0) return undefined;
      const delivery = this.#takeAhead(work) ?? this.#newDelivery(work, tried.failed + 1);
      delivery.beforeRun = () => lane.mark(record.offset);
      delivery.successor = () => this.#successor(work);
      const ran = await this.parts.attempts.run(handler, record, { delivery, on: lane });
      this.parts.slots.release(slots);
      const report = lane.kafka === undefined ? ran : await sent(ran, delivery, lane.kafka);
      if (delivery.ahead !== undefined) await delivery.ahead.discard(); // its interceptor was not reached
      const step = this.#decide(work, delivery, { report, tried });
      switch (step.step) {
        case 'settle':
          return settledBy(delivery, step);
        case 'park':
          return this.#parking.park(work, delivery, { reason: step.reason, error: errorOf(report), tried });
        case 'again':
          await pauseOf(lane, step.delayMs);
      }
    }
  }

  #newDelivery({ handler, record }: Work, attempt: number): DeliveryInProgress {
    return newDelivery(handler, record, { attempt, jsonDepth: this.parts.jsonDepth });
  }

  /** The delivery of the record behind this one, if nothing but that comes next: one handler, nothing parked, nobody who waits for its slot. */
  #successor({ handler, record, lane }: Work): DeliveryInProgress | undefined {
    const next = lane.parking.hasParked || this.parts.slots.isWanted ? undefined : lane.follower(record);
    const isPlain =
      handler.profile.transaction === 'database' && handler.profile.batch === undefined && handler.isEventHandler;
    if (next === undefined || !isPlain || this.#handlersOf(next).length > 1) return undefined;
    const delivery = this.#newDelivery({ handler, record: next, lane }, 1);
    lane.ahead = new Ahead(next, delivery);
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

  /** Only what the database has answered tells that it is there: not a handler without a transaction, a decoding error or a timeout. */
  #tellOutage(delivery: DeliveryInProgress, report: DeliveryReport, failure: Failure | undefined): void {
    if (failure?.kind === 'infrastructure') {
      if (failure.of === 'database') this.parts.outage.suffered(textOf(errorOf(report)));
    } else if (report.outcome === 'busy' || (delivery.hasTransaction && report.outcome !== 'unknown')) {
      if (!IdempotencyError.is(errorOf(report), 'HANDLER_TIMEOUT')) this.parts.outage.passed();
    }
  }
}

function noHandler({ topic, partition, offset }: ConsumedRecord): IdempotencyError {
  return new IdempotencyError(
    'NO_HANDLER',
    `No handler matches topic ${topic}, so its partition ${partition} stops in front of offset ${offset}`,
  );
}

/** What it has published leaves after its handler has ended, and only then it is processed. */
async function sent(report: DeliveryReport, delivery: DeliveryInProgress, kafka: KafkaEnd): Promise<DeliveryReport> {
  if (report.outcome !== 'processed') return report;
  const ended = await kafka.commit([delivery], BigInt(delivery.offset) + 1n);
  if (ended.kind === 'committed') return report;
  return { outcome: ended.kind === 'refused' ? 'failed' : 'unknown', error: ended.error };
}

/** Nobody knows how the transaction was committed that made a record a duplicate. */
export function settledBy({ durability }: DeliveryInProgress, { duplicate }: { readonly duplicate: boolean }): Settled {
  if (duplicate) return DUPLICATE;
  return durability === 'commit' ? DURABLE : IN_WINDOW;
}

const DUPLICATE: Settled = { duplicate: true, durable: false };
const DURABLE: Settled = { duplicate: false, durable: true };
const IN_WINDOW: Settled = { duplicate: false, durable: false };
