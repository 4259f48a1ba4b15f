import { IdempotencyError } from '../shared/errors.js';
import type { StoredRecord } from '../shared/parking.js';
import { deadLetterHeaders, type DeadLetterFacts } from './dead-letter-headers.js';
import type { DeadLetterPublisher } from './dead-letters.js';

/** A dead record, of which a copy has to be acknowledged before its row says so. */
export interface DeadRecord {
  readonly record: StoredRecord;
  readonly facts: Omit<DeadLetterFacts, 'stack'>;
  /** As it was thrown, for its stack. */
  readonly error: unknown;
}

/**
 * Publishes the copy of a dead record before its row is written: a crash in between gives a second copy, never a missing one. While this process lives
 * there is one: a copy sent for a row that could not be written is remembered.
 */
export class DeadLetterCopies {
  /** Copies whose row is not written yet. */
  readonly #sent = new Set<string>();

  /** `publisher` undefined: dead letters are off. */
  constructor(
    private readonly publisher: DeadLetterPublisher | undefined,
    private readonly options: { readonly stack: boolean },
  ) {}

  /** Publishes if needed, then writes the row. Throws DEAD_LETTER_FAILED before anything is written, or what `write` throws. */
  async around<T>(dead: DeadRecord, write: () => Promise<T>): Promise<T> {
    if (this.publisher === undefined) return write();
    const id = identity(dead);
    if (!this.#sent.has(id)) await this.#publish(this.publisher, dead);
    this.#sent.add(id);
    const written = await write();
    this.#sent.delete(id);
    return written;
  }

  /** Whole, else without message and stack, else the row alone has it. */
  async #publish(publisher: DeadLetterPublisher, { record, facts, error }: DeadRecord): Promise<void> {
    const all = { ...facts, stack: this.options.stack ? stackOf(error) : undefined };
    const { key, value } = record;
    try {
      for (const brief of [false, true]) {
        const letter = { key, value, headers: deadLetterHeaders(record, all, { brief }) };
        if ((await publisher.publish(letter)) === 'sent') return;
      }
    } catch (cause) {
      const place = `${record.topic}/${record.partition}/${record.offset}`;
      throw new IdempotencyError(
        'DEAD_LETTER_FAILED',
        `The dead letter of ${place} for ${facts.consumer} was not acknowledged, so the event is not parked and its offset stays. It is tried again; look at the dead-letter topic and the brokers`,
        {
          cause,
          retryable: true,
          facts: { consumer: facts.consumer, topic: record.topic, partition: record.partition },
        },
      );
    }
  }
}

function identity({ record, facts }: DeadRecord): string {
  return JSON.stringify([
    facts.consumer,
    record.topic,
    record.partition,
    record.offset.toString(),
    record.timestamp.getTime(),
  ]);
}

function stackOf(error: unknown): string | undefined {
  try {
    const { stack } = error as { stack?: unknown };
    return typeof stack === 'string' ? stack : undefined;
  } catch {
    return undefined; // null, undefined, or a getter that throws
  }
}
