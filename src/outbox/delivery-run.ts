import { SendIncomplete, type CheckedProducer } from '../kafka/checked-producer.js';
import { typeOf } from '../kafka/broker-answer.js';
import { IdempotencyError } from '../shared/errors.js';
import { lineOf, rowMessage, type OutboxRow, type RowMessage } from './outbox-row.js';

export interface FailedRow {
  readonly row: OutboxRow;
  readonly error: unknown;
  /** No other try would help. */
  readonly isFinal: boolean;
}

/** Answers that lie in the message itself, beside those CheckedProducer tells by their codes. */
const OF_A_MESSAGE: readonly unknown[] = ['INVALID_RECORD', 'INVALID_TIMESTAMP', 'INVALID_TOPIC_EXCEPTION'];

/**
 * Sends rows and finds out which of them it is that Kafka does not take:
 * - a message Kafka refuses is found by halving, and fails alone;
 * - what was not acknowledged fails, what was is sent;
 * - a topic that takes nothing does not stand in the way of the others;
 * - behind a row that failed, no later one of its key is sent.
 */
export class DeliveryRun {
  readonly sent: OutboxRow[] = [];
  readonly failed: FailedRow[] = [];
  /** Topics that took nothing, through no fault of the rows. */
  readonly away = new Map<string, unknown>();
  readonly #stopped = new Set<string>();

  constructor(
    private readonly producer: Pick<CheckedProducer, 'send'>,
    private readonly mayGoOn: (row: OutboxRow) => boolean,
  ) {}

  /** Rows were left out because they are not ours to send any more. */
  hasLeftOut = false;

  /** Never rejects. */
  async deliver(rows: readonly OutboxRow[]): Promise<void> {
    const wanted = rows.filter((row) => !this.#isStopped(row) && !this.away.has(row.topic));
    const open = wanted.filter((row) => this.mayGoOn(row));
    this.hasLeftOut ||= open.length < wanted.length;
    if (open.length === 0) return;
    try {
      await this.producer.send(open.map(rowMessage));
      this.sent.push(...open);
    } catch (error) {
      await this.#divide(open, error);
    }
  }

  /** Of each key the first; the others wait behind it. */
  fail(rows: readonly OutboxRow[], error: unknown, isFinal = false): void {
    for (const row of rows) {
      const line = lineOf(row);
      if (this.#stopped.has(line)) continue;
      if (!isFinal) this.#stopped.add(line);
      this.failed.push({ row, error, isFinal });
    }
  }

  #isStopped(row: OutboxRow): boolean {
    return this.#stopped.size > 0 && this.#stopped.has(lineOf(row));
  }

  async #divide(rows: readonly OutboxRow[], error: unknown): Promise<void> {
    if (error instanceof SendIncomplete) {
      const unsent = new Set((error.unsent as readonly Partial<RowMessage>[]).map(({ row }) => row));
      this.sent.push(...rows.filter((row) => !unsent.has(row)));
      this.fail(
        rows.filter((row) => unsent.has(row)),
        error,
      );
      return;
    }
    const topics = [...new Set(rows.map(({ topic }) => topic))];
    if (topics.length > 1) {
      for (const name of topics) await this.deliver(rows.filter(({ topic }) => topic === name));
    } else if (!isOfMessage(error)) {
      this.away.set(topics[0]!, error);
    } else if (rows.length === 1) {
      this.fail(rows, error, true);
    } else {
      const middle = Math.ceil(rows.length / 2);
      await this.deliver(rows.slice(0, middle));
      await this.deliver(rows.slice(middle));
    }
  }
}

function isOfMessage(error: unknown): boolean {
  return (
    IdempotencyError.is(error, 'MESSAGE_TOO_LARGE') ||
    error instanceof TypeError ||
    OF_A_MESSAGE.includes(typeOf(error))
  );
}
