import { setTimeout as sleep } from 'node:timers/promises';
import type { CheckedProducer } from '../kafka/checked-producer.js';
import { bytesOfMessage, inParts, SEND_BYTES } from '../kafka/send-parts.js';
import type { DeliveryReport } from '../shared/delivery.js';
import { IdempotencyError, type ErrorCode } from '../shared/errors.js';
import { noteOf } from '../shared/failed-attempt.js';
import type { KafkaSends } from '../shared/kafka-sends.js';
import type { ParkedDelivery, Redelivery, RedeliveryReport } from '../shared/parking.js';
import { within } from '../shared/within.js';
import { ConsumedRecord } from './consumed-record.js';
import { failureOf } from './failure-policy.js';
import type { RegisteredHandler } from './handler-table.js';
import { newDelivery } from './new-delivery.js';
import { nextStep } from './next-step.js';
import type { RecordDeliveryParts } from './record-delivery.js';

/** A lease would end under one that waits longer, with its round counted. */
const SLOT_MS = 15_000;
/** For what was killed to say how it ended. */
const KILLED_MS = 1100;
const NO_FAILURE: readonly ErrorCode[] = ['PARKED_CHANGED', 'SHUTDOWN_DEADLINE'];

export interface RedeliveryParts extends RecordDeliveryParts {
  readonly isPaused: (topic: string) => boolean;
  /** For what exactly-once handlers publish. */
  readonly producer: Pick<CheckedProducer, 'send'>;
}

/**
 * Delivers parked events to their one consumer: one attempt each, in the same slots as records from Kafka, and as little as those during an outage. What runs
 * is ended with the consumer, and counts for nothing then.
 */
export class Redeliveries implements Redelivery {
  readonly consumers: Redelivery['consumers'];
  readonly #handlers = new Map<string, RegisteredHandler>();
  readonly #running = new Map<ParkedDelivery, Promise<unknown>>();
  readonly #waiting = new Set<AbortController>();
  #isEnding = false;

  constructor(private readonly parts: RedeliveryParts) {
    for (const handler of parts.handlers.all) this.#handlers.set(handler.profile.consumer, handler);
    this.consumers = new Map([...this.#handlers].map(([consumer, { profile }]) => [consumer, profile.settings]));
  }

  async redeliver(parked: ParkedDelivery): Promise<RedeliveryReport> {
    const handler = this.#handlers.get(parked.consumer);
    if (handler === undefined) return notNow(`no handler here is called ${parked.consumer}`);
    if (this.#isEnding) return notNow('the consumer drains');
    if (this.parts.isPaused(parked.record.topic)) return notNow(`topic ${parked.record.topic} is paused`);
    if (this.parts.outage.declared !== undefined) return notNow('the database is away');
    if (!(await this.#slot())) return notNow('no delivery slot is free, or the consumer drains');
    const running = this.#untilTold(handler, parked).finally(() => this.parts.slots.release());
    this.#running.set(parked, running);
    return running.finally(() => this.#running.delete(parked));
  }

  /** What waits is told that it comes too late, what runs may end until the deadline. */
  async end(deadlineMs: number): Promise<void> {
    this.#isEnding = true;
    for (const waiting of this.#waiting) waiting.abort();
    const running = [...this.#running];
    if (await within(Promise.all(running.map(([, ended]) => ended)), deadlineMs)) return;
    const message = `The redelivery did not end within the ${deadlineMs} ms that draining may take (shutdown.deadline), so its transaction is rolled back; it comes again`;
    for (const [parked] of this.#running)
      this.parts.attempts.kill(parked, new IdempotencyError('SHUTDOWN_DEADLINE', message, { retryable: true }));
    await within(Promise.all(this.#running.values()), KILLED_MS);
  }

  /** False: none in time. */
  async #slot(): Promise<boolean> {
    const patience = new AbortController(); // one of its own: signals made of a long-lived one are kept by it for ever
    this.#waiting.add(patience);
    const timer = setTimeout(() => patience.abort(), SLOT_MS);
    try {
      return await this.parts.slots.acquire(patience.signal);
    } finally {
      clearTimeout(timer);
      this.#waiting.delete(patience);
    }
  }

  /** Serialization failures and deadlocks rerun at once, as they do for records from Kafka. */
  async #untilTold(handler: RegisteredHandler, parked: ParkedDelivery): Promise<RedeliveryReport> {
    const { settings } = handler.profile;
    const record = ConsumedRecord.from(parked.record);
    for (let reruns = 0; ; reruns += 1) {
      const delivery = newDelivery(handler, record, { attempt: parked.attempt, jsonDepth: this.parts.jsonDepth });
      delivery.eventId = parked.eventId;
      delivery.removal = parked.removal;
      const ran = await this.parts.attempts.run(handler, record, { delivery, on: parked });
      const report = delivery.sends === undefined ? ran : await sentBy(this.parts.producer, ran, delivery.sends);
      if (report.outcome !== 'failed') return report;
      const { error } = report;
      // Somebody else has the row, or the consumer ends: that is no failure of the event.
      if (NO_FAILURE.some((code) => IdempotencyError.is(error, code))) return { outcome: 'busy', error };
      const failure = failureOf(report, settings.classify, delivery);
      const step = nextStep(report, failure, { failed: 1, reruns }, { ...settings.retry, attempts: 1 });
      if (step.step !== 'again' || failure.kind !== 'transient')
        return { outcome: 'failed', error, failure: failure.kind, noted: noteOf(error, new Date()) };
      await sleep(step.delayMs);
    }
  }
}

/** No offset says that it was done, so it is sent at least once: under the ids that it always has. */
async function sentBy(
  producer: Pick<CheckedProducer, 'send'>,
  report: DeliveryReport,
  sends: KafkaSends,
): Promise<DeliveryReport> {
  if (report.outcome !== 'processed') return report;
  try {
    for (const part of inParts(sends.messages, SEND_BYTES, bytesOfMessage)) await producer.send(part);
    return report;
  } catch (error) {
    return { outcome: 'failed', error };
  }
}

function notNow(why: string): RedeliveryReport {
  const message = `The parked event is not delivered now: ${why}`;
  return { outcome: 'busy', error: new IdempotencyError('HANDLER_RETRYING', message, { retryable: true }) };
}
