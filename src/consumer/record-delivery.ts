import { setTimeout as sleep } from 'node:timers/promises';
import { Logger } from '@nestjs/common';
import { isObservable, lastValueFrom, toArray } from 'rxjs';
import { DeliveryInProgress, runInDelivery, type DeliveryReport } from '../shared/delivery.js';
import { IdempotencyError } from '../shared/errors.js';
import { placeOf, type EmitEvent } from '../shared/events.js';
import type { RecordView } from '../shared/record.js';
import type { TopicPartition } from '../kafka/positions.js';
import type { ConsumedRecord } from './consumed-record.js';
import type { HandlerTable, RegisteredHandler } from './handler-table.js';
import { nestContext, type NestContext } from './nest-context.js';
import { nextStep } from './next-step.js';
import { requestOf, type Replies } from './replies.js';
import type { Slots } from './slots.js';

/** How long a killed delivery may take to say how it ended, before the transport stops waiting for it. */
const GRACE_MS = 1000;
/** How often running deliveries are compared with their timeouts: one timer for all is cheaper than one for each. */
const WATCH_MS = 50;

/** The lane a record is delivered for. */
export interface LaneWork extends TopicPartition {
  /** Aborts when the record shall not be tried again here. */
  readonly interrupted: AbortSignal;
  readonly mayBegin: boolean;
  untilMayBegin(): Promise<void>;
  retrying: { readonly since: Date; readonly detail: string } | undefined;
  stopped: IdempotencyError | undefined;
}

export interface RecordDeliveryParts {
  readonly handlers: HandlerTable;
  readonly slots: Slots;
  readonly replies: Replies;
  readonly nest: NestContext;
  readonly jsonDepth: number;
  readonly emit: EmitEvent;
}

interface Running {
  readonly delivery: DeliveryInProgress;
  readonly timeoutMs: number;
  /** When that strikes, by performance.now(). */
  readonly timeoutAt: number;
  kill(error: IdempotencyError): void;
}

/**
 * Brings one record to all handlers of its topic, each until it is settled:
 * - every attempt of every handler gets a fresh copy of the raw bytes;
 * - the outcome the interceptor reported counts before what Nest made of it;
 * - a failing handler keeps the record in front; handlers that are done with it do not run again.
 */
export class RecordDelivery {
  readonly #logger = new Logger('IdempotentKafkaServer');
  readonly #running = new Map<LaneWork, Running>();
  readonly #watch: NodeJS.Timeout;

  constructor(private readonly parts: RecordDeliveryParts) {
    this.#watch = setInterval(() => this.#killOverdue(), WATCH_MS);
  }

  /** Resolves when the record is final, or with undefined if the lane was interrupted before. Never rejects. */
  async deliver(record: ConsumedRecord, lane: LaneWork): Promise<{ duplicate: boolean } | undefined> {
    const handlers = this.#handlersOf(record);
    if (handlers.length === 0) {
      lane.stopped = new IdempotencyError(
        'NO_HANDLER',
        `No handler matches topic ${record.topic}, so its partition ${record.partition} stops in front of offset ${record.offset}`,
      );
      this.#logger.error(lane.stopped.message);
      return undefined;
    }
    let duplicate = false;
    for (const handler of handlers) {
      const settled = await this.#untilSettled(handler, record, lane);
      if (settled === undefined) return undefined;
      duplicate ||= settled.duplicate;
    }
    return { duplicate };
  }

  /** Tells the handler that works for this lane to stop; its transaction may still commit. */
  abort(lane: LaneWork, reason: IdempotencyError): void {
    this.#running.get(lane)?.delivery.abort(reason);
  }

  /** Ends by force whatever is still running. */
  killAll(error: IdempotencyError): void {
    for (const running of this.#running.values()) running.kill(error);
  }

  /** Nothing is delivered any more. */
  close(): void {
    clearInterval(this.#watch);
  }

  /** How many milliseconds the most overdue delivery is past its handler's timeout; negative while none is. */
  overdueMs(): number {
    return performance.now() - Math.min(Infinity, ...[...this.#running.values()].map(({ timeoutAt }) => timeoutAt));
  }

  /** Event handlers always run; a request handler only for a request, or alone as Nest does it. */
  #handlersOf(record: ConsumedRecord): readonly RegisteredHandler[] {
    const all = this.parts.handlers.handlersOf(record.topic);
    const events = all.filter((handler) => handler.isEventHandler);
    return events.length > 0 && requestOf(record.message) === undefined ? events : all;
  }

  async #untilSettled(
    handler: RegisteredHandler,
    record: ConsumedRecord,
    lane: LaneWork,
  ): Promise<{ duplicate: boolean } | undefined> {
    const { settings } = handler.profile;
    const { slots } = this.parts;
    let failed = 0;
    let reruns = 0;
    for (;;) {
      if (!lane.mayBegin) await lane.untilMayBegin();
      if (lane.interrupted.aborted) return undefined;
      if (!slots.tryAcquire()) {
        await slots.acquire();
        if (lane.interrupted.aborted) {
          slots.release(); // the partition was lost while it waited
          return undefined;
        }
      }
      const view = record.view(settings.decode, this.parts.jsonDepth);
      const delivery = new DeliveryInProgress(view, handler.profile.consumer, failed + 1);
      const report = await this.#attempt(handler, record, delivery, lane);
      const step = nextStep(
        report,
        { failed: report.outcome === 'failed' ? failed + 1 : failed, reruns },
        settings.retry,
      );
      if (step.step === 'settle') {
        lane.retrying = undefined;
        return step;
      }
      if (step.counts) failed += 1;
      reruns = report.outcome === 'failed' && !step.counts ? reruns + 1 : 0;
      this.#tell(report as DeliveryReport & { error: unknown }, step, delivery, lane);
      await sleep(step.delayMs, undefined, { signal: lane.interrupted }).catch(() => undefined); // interrupted: the loop ends
    }
  }

  /** One delivery. Resolves with how it ended; a handler that does not end is killed at its timeout, and left behind if even that does not end it. */
  #attempt(
    handler: RegisteredHandler,
    record: ConsumedRecord,
    delivery: DeliveryInProgress,
    lane: LaneWork,
  ): Promise<DeliveryReport> {
    const { timeoutMs } = handler.profile.settings;
    return new Promise((resolve) => {
      let grace: NodeJS.Timeout | undefined;
      const end = (report: DeliveryReport) => {
        if (this.#running.get(lane)?.delivery !== delivery) return; // left behind before: what it says now changes nothing
        this.#running.delete(lane);
        clearTimeout(grace);
        delivery.report(report);
        this.parts.slots.release();
        resolve(report);
      };
      const kill = (error: IdempotencyError) => {
        delivery.kill(error);
        grace ??= setTimeout(() => end(delivery.reported ?? failed(error)), GRACE_MS);
      };
      // Something in front of the handler, such as a timeout(), may give up while its transaction still runs: that has to end with it.
      const settled = (report: () => DeliveryReport) => {
        if (delivery.taken && delivery.reported === undefined) kill(delivery.killed ?? gaveUp(delivery));
        else end(report());
      };
      this.#running.set(lane, { delivery, kill, timeoutMs, timeoutAt: performance.now() + timeoutMs });
      this.parts.emit({ name: 'received', ...placeOf(delivery) });
      this.#call(handler, record, delivery).then(
        () => settled(() => this.#reportOf(handler, delivery)),
        (error: unknown) => settled(() => delivery.reported ?? failed(delivery.killed ?? error)),
      );
    });
  }

  #killOverdue(): void {
    const now = performance.now();
    for (const running of this.#running.values()) {
      const { delivery, timeoutMs, timeoutAt } = running;
      if (now >= timeoutAt && delivery.killed === undefined) running.kill(timeoutError(timeoutMs, delivery));
    }
  }

  #reportOf(handler: RegisteredHandler, delivery: DeliveryInProgress): DeliveryReport {
    if (delivery.reported !== undefined) return delivery.reported;
    if (delivery.killed !== undefined) return failed(delivery.killed);
    if (!handler.profile.idempotent) {
      this.parts.emit({ name: 'processed', ...placeOf(delivery) });
      return { outcome: 'processed' };
    }
    const message = `${delivery.consumer} did not run: a guard, an interceptor or an exception filter in front of it answered instead, so nothing was written and the record stays`;
    return failed(new IdempotencyError('HANDLER_FAILED', message));
  }

  /** The context of the delivery surrounds call and subscription: Nest's handlers return cold Observables. */
  #call(handler: RegisteredHandler, record: ConsumedRecord, delivery: DeliveryInProgress): Promise<unknown> {
    const request = handler.isEventHandler ? undefined : requestOf(record.message);
    const invoke = async () => {
      const payload = decodedPayload(delivery);
      const context = nestContext(record, payload, this.parts.nest);
      return this.parts.nest.withHooks(context, async () => {
        const returned: unknown = await handler.callback(payload, context);
        if (request !== undefined) return isObservable(returned) ? lastValueFrom(returned.pipe(toArray())) : [returned];
        return isObservable(returned) ? lastValueFrom(returned, { defaultValue: undefined }) : returned;
      });
    };
    if (request === undefined) return runInDelivery(delivery, invoke);
    const values = () => Promise.race([runInDelivery(delivery, invoke) as Promise<unknown[]>, killed(delivery)]);
    return this.parts.replies.answer(request, values).then(() => delivery.report({ outcome: 'processed' }));
  }

  #tell(
    report: { outcome: string; error: unknown },
    step: { delayMs: number },
    delivery: DeliveryInProgress,
    lane: LaneWork,
  ): void {
    const place = placeOf(delivery);
    this.parts.emit({ name: report.outcome as 'failed' | 'busy' | 'unknown', error: report.error, ...place });
    this.parts.emit({ name: 'retried', error: report.error, delayMs: step.delayMs, ...place });
    const where = `${delivery.topic}[${delivery.partition}]@${delivery.offset}${delivery.eventId === undefined ? '' : `, event ${delivery.eventId}`}`;
    const detail = `${delivery.consumer} ${report.outcome} on ${where}, attempt ${delivery.attempt}: ${oneLine(report.error)}`;
    lane.retrying = { since: lane.retrying?.since ?? new Date(), detail };
    this.#logger.warn(`${detail}; again in ${step.delayMs} ms`);
  }
}

/** Rejects when the delivery is killed, so that a hung request gets its error reply. */
function killed(delivery: DeliveryInProgress): Promise<never> {
  return new Promise((_, reject) => delivery.onKill(reject));
}

function failed(error: unknown): DeliveryReport {
  return { outcome: 'failed', error };
}

function decodedPayload(view: RecordView): unknown {
  try {
    return view.decoded();
  } catch (error) {
    if (IdempotencyError.is(error)) throw error;
    throw new IdempotencyError('DECODE_FAILED', 'The decode function of the handler threw', { cause: error });
  }
}

function gaveUp(delivery: DeliveryInProgress): IdempotencyError {
  const message = `An interceptor or exception filter in front of ${delivery.consumer} ended before it, so its transaction is rolled back. Use the option timeout to limit a handler`;
  return new IdempotencyError('HANDLER_FAILED', message, { retryable: true });
}

function timeoutError(timeoutMs: number, delivery: DeliveryInProgress): IdempotencyError {
  const message = `${delivery.consumer} took longer than its timeout of ${timeoutMs} ms, so its transaction is rolled back. Raise timeout, or use the delivery's signal to end early`;
  return new IdempotencyError('HANDLER_TIMEOUT', message, { retryable: true });
}

/** The error's text for a log line: one line, bounded, without a stack. Whatever was thrown: it must not throw itself. */
function oneLine(error: unknown): string {
  return textOf(error).replace(/\s+/g, ' ').slice(0, 300);
}

function textOf(error: unknown): string {
  if (error instanceof Error) return `${error.name}: ${error.message}`;
  const message = (error as { message?: unknown } | null | undefined)?.message;
  if (typeof message === 'string') return message;
  return typeof error === 'object' && error !== null ? 'an object that is no Error' : String(error);
}
