import type { KafkaContext } from '@nestjs/microservices';
import { isObservable, lastValueFrom, toArray, type Observer } from 'rxjs';
import type { BatchDelivery } from '../shared/batch-delivery.js';
import { runInDelivery, type DeliveryInProgress, type DeliveryReport } from '../shared/delivery.js';
import { BatchItemError, IdempotencyError } from '../shared/errors.js';
import { eventAt, placeOf, type EmitEvent } from '../shared/events.js';
import type { RecordView } from '../shared/record.js';
import type { ConsumedRecord } from './consumed-record.js';
import type { RegisteredHandler } from './handler-table.js';
import { batchContext, nestContext, type NestContext } from './nest-context.js';
import { requestOf, type Replies } from './replies.js';

/** How long a killed delivery may take to say how it ended, before the transport stops waiting for it. */
const GRACE_MS = 1000;
/** How often running deliveries are compared with their timeouts: one timer for all is cheaper than one for each. */
const WATCH_MS = 50;

export interface AttemptParts {
  readonly replies: Replies;
  readonly nest: NestContext;
  readonly emit: EmitEvent;
}

/** What is called when Nest's handler has ended. */
interface Ended {
  readonly done: () => void;
  readonly failed: (error: unknown) => void;
}

/** What Nest hands to the handler. */
interface Arguments {
  readonly payload: unknown;
  readonly context: KafkaContext;
}

interface Running {
  readonly delivery: DeliveryInProgress;
  readonly timeoutMs: number;
  /** When that strikes, by performance.now(). */
  readonly timeoutAt: number;
  kill(error: IdempotencyError): void;
}

/**
 * Runs single deliveries and watches over them:
 * - the outcome the interceptor reported counts before what Nest made of it;
 * - at its timeout a delivery is killed: its transaction ends, whatever the handler is doing;
 * - one that even then does not end, or whose handler does not, is left behind, and stays visible to health until it does.
 */
export class DeliveryAttempts {
  /** By what they are run for: one at a time each. */
  readonly #running = new Map<object, Running>();
  /** Left behind, with the time of their timeout: the handler, or something in front of it, has not ended. */
  readonly #abandoned = new Map<DeliveryInProgress, number>();
  readonly #watch: NodeJS.Timeout;

  constructor(private readonly parts: AttemptParts) {
    this.#watch = setInterval(() => this.#killOverdue(), WATCH_MS);
  }

  /** Resolves with how the delivery ended. Never rejects. `on`: what it is run for, such as a lane. */
  run(
    handler: RegisteredHandler,
    record: ConsumedRecord,
    { delivery, on }: { delivery: DeliveryInProgress; on: object },
  ): Promise<DeliveryReport> {
    const isPlain = handler.isEventHandler && handler.profile.idempotent && !this.parts.nest.hasHooks();
    return this.#watched(handler, { delivery, on }, (ended) => {
      if (isPlain) this.#callPlain(handler, record, { delivery, ended });
      else this.#call(handler, record, delivery).then(ended.done, ended.failed);
    });
  }

  /** The same for several records at once, by a handler that takes batches: it is not called if none of their events is to run. */
  runBatch(
    handler: RegisteredHandler,
    records: readonly ConsumedRecord[],
    { delivery, on }: { delivery: BatchDelivery; on: object },
  ): Promise<DeliveryReport> {
    return this.#watched(handler, { delivery, on }, (ended) => {
      this.#callBatch(handler, records, delivery).then(ended.done, ended.failed);
    });
  }

  #watched(
    handler: RegisteredHandler,
    { delivery, on }: { delivery: DeliveryInProgress; on: object },
    call: (ended: Ended) => void,
  ): Promise<DeliveryReport> {
    const { timeoutMs } = handler.profile.settings;
    const timeoutAt = performance.now() + timeoutMs;
    return new Promise((resolve) => {
      let grace: NodeJS.Timeout | undefined;
      const end = (report: DeliveryReport) => {
        if (this.#running.get(on)?.delivery !== delivery) return; // left behind before: what it says now changes nothing
        this.#running.delete(on);
        clearTimeout(grace);
        if (delivery.isHandling) this.#abandoned.set(delivery, timeoutAt);
        delivery.report(report);
        resolve(report);
      };
      const kill = (error: IdempotencyError) => {
        delivery.kill(error);
        grace ??= setTimeout(() => end(delivery.reported ?? failed(error, delivery)), GRACE_MS);
      };
      // Something in front of the handler, such as a timeout(), may give up while its transaction still runs: that has to end with it.
      const settled = (report: () => DeliveryReport) => {
        if (delivery.taken && delivery.reported === undefined) kill(delivery.killed ?? gaveUp(delivery));
        else end(report());
      };
      this.#running.set(on, { delivery, kill, timeoutMs, timeoutAt });
      for (const one of delivery.members) this.parts.emit(eventAt('received', one));
      call({
        done: () => settled(() => this.#reportOf(handler, delivery)),
        failed: (error) => settled(() => delivery.reported ?? failed(delivery.killed ?? error, delivery)),
      });
    });
  }

  /** Tells the handler that works for this to stop; its transaction may still commit. */
  abort(on: object, reason: IdempotencyError): void {
    this.#running.get(on)?.delivery.abort(reason);
  }

  /** Ends by force what runs for this. */
  kill(on: object, error: IdempotencyError): void {
    this.#running.get(on)?.kill(error);
  }

  close(): void {
    clearInterval(this.#watch);
  }

  /** How many milliseconds the most overdue delivery, also one left behind, is past its handler's timeout; negative while none is. */
  overdueMs(): number {
    for (const delivery of this.#abandoned.keys()) if (!delivery.isHandling) this.#abandoned.delete(delivery);
    const timeouts = [...[...this.#running.values()].map(({ timeoutAt }) => timeoutAt), ...this.#abandoned.values()];
    return performance.now() - Math.min(Infinity, ...timeouts);
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
    if (delivery.killed !== undefined) return failed(delivery.killed, delivery);
    if (!handler.profile.idempotent) {
      this.parts.emit({ name: 'processed', ...placeOf(delivery) });
      return { outcome: 'processed' };
    }
    const message = `${delivery.consumer} did not run: a guard, an interceptor or an exception filter in front of it answered instead, so nothing was written and the record stays`;
    return failed(new IdempotencyError('HANDLER_FAILED', message), delivery);
  }

  /** What {@link #call} does, for the many, with one promise instead of six. */
  #callPlain(
    handler: RegisteredHandler,
    record: ConsumedRecord,
    { delivery, ended }: { delivery: DeliveryInProgress; ended: Ended },
  ): void {
    const observer: Partial<Observer<unknown>> = { complete: ended.done, error: ended.failed };
    runInDelivery(delivery, () => {
      try {
        const { payload, context } = this.#arguments(handler, record, delivery);
        Promise.resolve(handler.callback(payload, context)).then((returned) => {
          if (isObservable(returned)) returned.subscribe(observer);
          else ended.done();
        }, ended.failed);
      } catch (error) {
        ended.failed(error);
      }
    });
  }

  /** The context of the delivery surrounds call and subscription: Nest's handlers return cold Observables. */
  #call(handler: RegisteredHandler, record: ConsumedRecord, delivery: DeliveryInProgress): Promise<unknown> {
    const request = handler.isEventHandler ? undefined : requestOf(record.message);
    if (request === undefined) return runInDelivery(delivery, () => this.#invoke(handler, record, delivery, lastValue));
    const values = () =>
      runInDelivery(delivery, () => this.#invoke(handler, record, delivery, allValues)).finally(
        () => (delivery.isReplying = true),
      );
    return this.parts.replies.answer(request, values).then(() => delivery.report({ outcome: 'processed' }));
  }

  /** As few promises as it can be: each costs some microseconds, for every record. */
  async #invoke<T>(
    handler: RegisteredHandler,
    record: ConsumedRecord,
    delivery: DeliveryInProgress,
    valueOf: (returned: unknown) => T | PromiseLike<T>,
  ): Promise<T> {
    const { payload, context } = this.#arguments(handler, record, delivery);
    return this.parts.nest.withHooks(context, () => {
      const call = () => Promise.resolve(handler.callback(payload, context)).then(valueOf);
      return handler.profile.idempotent ? call() : unguarded(delivery, call);
    });
  }

  /** A record that is not part of a group comes to a batch handler as an array of one. */
  #arguments(handler: RegisteredHandler, record: ConsumedRecord, delivery: DeliveryInProgress): Arguments {
    const { nest } = this.parts;
    const payload = decodedPayload(delivery);
    if (handler.profile.batch === undefined) return { payload, context: nestContext(record, payload, nest) };
    return { payload: [payload], context: batchContext(record, payload, { deliveries: [delivery], nest }) };
  }

  #callBatch(handler: RegisteredHandler, records: readonly ConsumedRecord[], batch: BatchDelivery): Promise<unknown> {
    const { nest } = this.parts;
    return runInDelivery(batch, async () => {
      const deliveries = await batch.claim();
      const first = deliveries[0];
      if (first === undefined) return batch.report({ outcome: 'duplicate' });
      const payload = deliveries.map(decodedItem);
      const context = batchContext(records[batch.all.indexOf(first)]!, payload[0], { deliveries, nest });
      return nest.withHooks(context, () => Promise.resolve(handler.callback(payload, context)).then(lastValue));
    });
  }
}

/** An Observable's last value, `undefined` if it has none. */
function lastValue(returned: unknown): unknown {
  return isObservable(returned) ? lastValueFrom(returned, { defaultValue: undefined }) : returned;
}

/** All values, for a request. */
function allValues(returned: unknown): unknown[] | Promise<unknown[]> {
  return isObservable(returned) ? lastValueFrom(returned.pipe(toArray())) : [returned];
}

/** A handler without our interceptor: nobody else waits for the kill, or says that it runs. */
async function unguarded<T>(delivery: DeliveryInProgress, call: () => Promise<T>): Promise<T> {
  await delivery.clearToRun();
  delivery.isHandling = true;
  const running = call().finally(() => (delivery.isHandling = false));
  return Promise.race([running, killed(delivery)]);
}

/** Rejects when the delivery is killed, so that its hooks end and a hung request gets its error reply. */
function killed(delivery: DeliveryInProgress): Promise<never> {
  return new Promise((_, reject) => delivery.onKill(reject));
}

/** What was killed while it waited for its connection, its claim or the acknowledgement of its reply says nothing about the handler. */
function failed(error: unknown, { isOpening, isReplying }: DeliveryInProgress): DeliveryReport {
  if (isOpening || IdempotencyError.is(error, 'DATABASE_UNAVAILABLE'))
    return { outcome: 'failed', error, isOutage: true };
  if (!isReplying || IdempotencyError.is(error, 'BROKER_UNAVAILABLE')) return { outcome: 'failed', error };
  const message = 'The reply was not acknowledged in time; the request runs again';
  return {
    outcome: 'failed',
    error: new IdempotencyError('BROKER_UNAVAILABLE', message, { cause: error, retryable: true }),
  };
}

function decodedPayload(view: RecordView): unknown {
  try {
    return view.decoded();
  } catch (error) {
    if (IdempotencyError.is(error)) throw error;
    throw new IdempotencyError('DECODE_FAILED', 'The decode function of the handler threw', { cause: error });
  }
}

function decodedItem(view: RecordView, index: number): unknown {
  try {
    return decodedPayload(view);
  } catch (error) {
    throw new BatchItemError(index, { cause: error });
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
