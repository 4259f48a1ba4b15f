import { DeliveryInProgress } from '../shared/delivery.js';
import { IdempotencyError } from '../shared/errors.js';
import { noteOf } from '../shared/failed-attempt.js';
import type { ParkedDelivery, Redelivery, RedeliveryReport } from '../shared/parking.js';
import { ConsumedRecord } from './consumed-record.js';
import { failureOf } from './failure-policy.js';
import type { RegisteredHandler } from './handler-table.js';
import type { RecordDeliveryParts } from './record-delivery.js';

const SLOT_MS = 15_000;

export interface RedeliveryParts extends RecordDeliveryParts {
  readonly isPaused: (topic: string) => boolean;
}

/** Delivers parked events to their one consumer: one attempt each, in the same slots as records from Kafka, and as little as those during an outage. */
export class Redeliveries implements Redelivery {
  readonly consumers: Redelivery['consumers'];
  readonly #handlers = new Map<string, RegisteredHandler>();
  readonly #end = new AbortController();

  constructor(private readonly parts: RedeliveryParts) {
    for (const handler of parts.handlers.all) this.#handlers.set(handler.profile.consumer, handler);
    this.consumers = new Map([...this.#handlers].map(([consumer, { profile }]) => [consumer, profile.settings]));
  }

  async redeliver(parked: ParkedDelivery): Promise<RedeliveryReport> {
    const { slots, outage, attempts, jsonDepth } = this.parts;
    const handler = this.#handlers.get(parked.consumer);
    if (handler === undefined) return notNow(`no handler here is called ${parked.consumer}`);
    if (this.parts.isPaused(parked.record.topic)) return notNow(`topic ${parked.record.topic} is paused`);
    if (outage.declared !== undefined) return notNow('the database is away');
    // A lease would end under one that waits longer, with its round counted.
    const patience = AbortSignal.any([this.#end.signal, AbortSignal.timeout(SLOT_MS)]);
    if (!(await slots.acquire(patience))) return notNow('no delivery slot is free, or the consumer drains');
    const { settings } = handler.profile;
    const record = ConsumedRecord.from(parked.record);
    const delivery = new DeliveryInProgress(record.view(settings.decode, jsonDepth), parked.consumer, parked.attempt);
    delivery.eventId = parked.eventId;
    delivery.removal = parked.removal;
    const report = await attempts.run(handler, record, { delivery, on: parked });
    slots.release();
    if (report.outcome !== 'failed') return report;
    const { error } = report;
    // Somebody else has the row: that is no failure of the event.
    if (IdempotencyError.is(error, 'PARKED_CHANGED')) return { outcome: 'busy', error };
    return {
      outcome: 'failed',
      error,
      failure: failureOf(report, settings.classify, delivery).kind,
      noted: noteOf(error, new Date()),
    };
  }

  /** What waits for a slot is told that it comes too late; what runs ends. */
  end(): void {
    this.#end.abort();
  }
}

function notNow(why: string): RedeliveryReport {
  const message = `The parked event is not delivered now: ${why}`;
  return { outcome: 'busy', error: new IdempotencyError('HANDLER_RETRYING', message, { retryable: true }) };
}
