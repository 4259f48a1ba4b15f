import type { KafkaContext } from '@nestjs/microservices';
import { isObservable, lastValueFrom, toArray } from 'rxjs';
import type { BatchDelivery } from '../shared/batch-delivery.js';
import { runInDelivery, type DeliveryInProgress, type DeliveryReport } from '../shared/delivery.js';
import { BatchItemError, IdempotencyError } from '../shared/errors.js';
import { emitAt, placeOf, type EmitEvent } from '../shared/events.js';
import type { RecordView } from '../shared/record.js';
import type { ConsumedRecord } from './consumed-record.js';
import type { RegisteredHandler } from './handler-table.js';
import { batchContext, nestContext, type NestContext } from './nest-context.js';
import { failedReport } from './failed-report.js';
import { requestOf, type Replies } from './replies.js';
import { RunningDelivery } from './running-delivery.js';

/** How often running deliveries are compared with their timeouts: one timer for all is cheaper than one for each. */
const WATCH_MS = 50;

export interface AttemptParts {
  readonly replies: Replies;
  readonly nest: NestContext;
  readonly emit: EmitEvent;
}

/** What Nest hands to the handler. A class, as whatever lives as long as a transaction. */
class Arguments {
  constructor(
    readonly payload: unknown,
    readonly context: KafkaContext,
  ) {}
}

/**
 * Runs single deliveries and watches over them:
 * - the outcome the interceptor reported counts before what Nest made of it;
 * - at its timeout a delivery is killed: its transaction ends, whatever the handler is doing;
 * - one that even then does not end, or whose handler does not, is left behind, and stays visible to health until it does.
 */
export class DeliveryAttempts {
  /**
   * Few at a time, and no Map: the table that a Map has outgrown points to the next and keeps what was in it. Once V8 has moved one of these to its old
   * generation, every delivery that ever was in the Map stays, with its transaction, until the next full collection.
   */
  readonly #running: RunningDelivery[] = [];
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
    const isPlain = handler.isEventHandler && handler.profile.transaction !== 'none' && !this.parts.nest.hasHooks();
    return this.#watched(handler, { delivery, on }, (running) => {
      if (isPlain) this.#callPlain(handler, record, running);
      else running.endsWith(this.#call(handler, record, delivery));
    });
  }

  /** The same for several records at once, by a handler that takes batches: it is not called if none of their events is to run. */
  runBatch(
    handler: RegisteredHandler,
    records: readonly ConsumedRecord[],
    { delivery, on }: { delivery: BatchDelivery; on: object },
  ): Promise<DeliveryReport> {
    return this.#watched(handler, { delivery, on }, (running) =>
      running.endsWith(this.#callBatch(handler, records, delivery)),
    );
  }

  #watched(
    handler: RegisteredHandler,
    { delivery, on }: { delivery: DeliveryInProgress; on: object },
    call: (running: RunningDelivery) => void,
  ): Promise<DeliveryReport> {
    return new Promise((resolve) => {
      const running = new RunningDelivery({ delivery, on }, handler.profile.settings.timeoutMs, (told) => {
        this.#remove(running);
        const report = told ?? this.#reportOf(handler, delivery);
        if (delivery.isHandling) this.#abandoned.set(delivery, running.timeoutAt);
        delivery.report(report);
        resolve(report);
      });
      this.#running.push(running);
      for (const one of delivery.members) emitAt(this.parts.emit, 'received', one);
      call(running);
    });
  }

  /** Tells the handler that works for this to stop; its transaction may still commit. */
  abort(on: object, reason: IdempotencyError): void {
    this.#runningOn(on)?.delivery.abort(reason);
  }

  /** Ends by force what runs for this. */
  kill(on: object, error: IdempotencyError): void {
    this.#runningOn(on)?.kill(error);
  }

  close(): void {
    clearInterval(this.#watch);
  }

  /** How many milliseconds the most overdue delivery, also one left behind, is past its handler's timeout; negative while none is. */
  overdueMs(): number {
    for (const delivery of this.#abandoned.keys()) if (!delivery.isHandling) this.#abandoned.delete(delivery);
    const timeouts = [...this.#running.map(({ timeoutAt }) => timeoutAt), ...this.#abandoned.values()];
    return performance.now() - Math.min(Infinity, ...timeouts);
  }

  #runningOn(on: object): RunningDelivery | undefined {
    return this.#running.find((running) => running.on === on);
  }

  #remove(running: RunningDelivery): void {
    const at = this.#running.indexOf(running);
    const last = this.#running.pop()!;
    if (last !== running) this.#running[at] = last;
  }

  #killOverdue(): void {
    const now = performance.now();
    const overdue = this.#running.filter(
      ({ delivery, timeoutAt }) => now >= timeoutAt && delivery.killed === undefined,
    );
    for (const running of overdue) running.kill(timeoutError(running.timeoutMs, running.delivery));
  }

  #reportOf(handler: RegisteredHandler, delivery: DeliveryInProgress): DeliveryReport {
    if (delivery.reported !== undefined) return delivery.reported;
    if (delivery.killed !== undefined) return failedReport(delivery.killed, delivery);
    if (handler.profile.transaction === 'none') {
      this.parts.emit({ name: 'processed', ...placeOf(delivery) });
      return { outcome: 'processed' };
    }
    const message = `${delivery.consumer} did not run: a guard, an interceptor or an exception filter in front of it answered instead, so nothing was written and the record stays`;
    return failedReport(new IdempotencyError('HANDLER_FAILED', message), delivery);
  }

  /** What {@link #call} does, for the many, with one promise instead of six. */
  #callPlain(handler: RegisteredHandler, record: ConsumedRecord, running: RunningDelivery): void {
    const { delivery } = running;
    runInDelivery(delivery, () => {
      try {
        const { payload, context } = this.#arguments(handler, record, delivery);
        Promise.resolve(handler.callback(payload, context)).then(
          (returned) => {
            if (isObservable(returned)) returned.subscribe(running);
            else running.complete();
          },
          (error: unknown) => running.error(error),
        );
      } catch (error) {
        running.error(error);
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
      return handler.profile.transaction !== 'none' ? call() : unguarded(delivery, call);
    });
  }

  /** A record that is not part of a group comes to a batch handler as an array of one. */
  #arguments(handler: RegisteredHandler, record: ConsumedRecord, delivery: DeliveryInProgress): Arguments {
    const { nest } = this.parts;
    const payload = decodedPayload(delivery);
    if (handler.profile.batch === undefined) return new Arguments(payload, nestContext(record, payload, nest));
    return new Arguments([payload], batchContext(record, payload, { deliveries: [delivery], nest }));
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

function timeoutError(timeoutMs: number, delivery: DeliveryInProgress): IdempotencyError {
  const message = `${delivery.consumer} took longer than its timeout of ${timeoutMs} ms, so its transaction is rolled back. Raise timeout, or use the delivery's signal to end early`;
  return new IdempotencyError('HANDLER_TIMEOUT', message, { retryable: true });
}
