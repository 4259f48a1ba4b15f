import { setTimeout as sleep } from 'node:timers/promises';
import { IdempotencyError } from '../shared/errors.js';
import type { EmitEvent } from '../shared/events.js';
import { noteOf } from '../shared/failed-attempt.js';
import type { Redelivery } from '../shared/parking.js';
import { afterRedelivery, diedInLastRound, type AfterRedelivery } from './after-redelivery.js';
import type { DeadLetterCopies } from './dead-letter-copies.js';
import type { HeldKeys } from './held-keys.js';
import { LEASE_MARGIN_MS, type LeasedRows } from './leased-rows.js';
import { placeOfRow, recordOf, type ParkedRow } from './parked-row.js';
import type { Tombstones } from './tombstones.js';

const AT_ONCE = 16;
const AGAIN_MS = 1000;

export interface RedeliveryWorkerParts {
  readonly rows: LeasedRows;
  readonly keys: HeldKeys;
  readonly copies: DeadLetterCopies;
  readonly tombstones: Tombstones;
  readonly emit: EmitEvent;
  /** For what an operator should see. Never a payload. */
  readonly log: (message: string) => void;
  readonly pollMs: number;
  /** How often what crashes left behind is looked for, and old tombstones are deleted. */
  readonly tidyMs: number;
}

/**
 * Delivers parked events that are due, each to its one consumer:
 * - safe on many instances: a row is leased by one, and of a key only the lowest;
 * - the row goes in the transaction that handles the event, or stays;
 * - a round counts when it begins; one that met an outage, a busy claim or an unknown COMMIT is given back;
 * - a row that ends the process in every round ends up dead.
 */
export class RedeliveryWorker {
  readonly #stopping = new AbortController();
  readonly #running = new Set<Promise<void>>();
  #loop: Promise<void> | undefined;
  #isWoken = false;
  #endPause: (() => void) | undefined;
  #isFailing = false;

  constructor(private readonly parts: RedeliveryWorkerParts) {}

  start(redelivery: Redelivery): void {
    this.#loop ??= this.#work(redelivery);
  }

  /** Something may be due. */
  wake(): void {
    this.#isWoken = true;
    this.#endPause?.();
  }

  /** Takes no more rows and waits for the rounds that run. */
  async stop(): Promise<void> {
    this.#stopping.abort();
    this.wake();
    await this.#loop;
    await Promise.all(this.#running);
  }

  async #work(redelivery: Redelivery): Promise<void> {
    let tidyAt = 0;
    while (!this.#stopping.signal.aborted) {
      this.#isWoken = false;
      try {
        if (performance.now() >= tidyAt) {
          tidyAt = performance.now() + this.parts.tidyMs;
          await this.parts.keys.releaseAll();
          await this.parts.tombstones.purge();
        }
        await this.#takeDue(redelivery);
        this.#isFailing = false;
      } catch (error) {
        this.#tell(error); // the next poll is the next try
      }
      await this.#pause();
    }
  }

  async #takeDue(redelivery: Redelivery): Promise<void> {
    const free = AT_ONCE - this.#running.size;
    if (free === 0 || redelivery.consumers.size === 0) return;
    const leases = [...redelivery.consumers].map(([consumer, { timeoutMs }]) => ({
      consumer,
      leaseMs: timeoutMs + LEASE_MARGIN_MS,
    }));
    for (const row of await this.parts.rows.take(leases, free)) {
      const round = this.#round(row, redelivery)
        .catch((error: unknown) => this.#tell(error)) // its lease ends by itself
        .finally(() => {
          this.#running.delete(round);
          this.wake();
        });
      this.#running.add(round);
    }
  }

  async #round(row: ParkedRow, redelivery: Redelivery): Promise<void> {
    const next = await this.#deliver(row, redelivery);
    while (!(await this.#settled(row, next))) {
      if (this.#stopping.signal.aborted) return; // the lease ends by itself, with the round counted
      await sleep(AGAIN_MS, undefined, { signal: this.#stopping.signal }).catch(() => undefined);
    }
  }

  async #deliver(row: ParkedRow, redelivery: Redelivery): Promise<AfterRedelivery> {
    const settings = redelivery.consumers.get(row.consumer)!; // leased for the consumers of this very object
    if (diedInLastRound(row.rounds, settings.redelivery)) {
      const error = processDied(row);
      return { step: 'dead', error, noted: noteOf(error, new Date()), reason: 'process-death' };
    }
    const report = await redelivery.redeliver({
      record: recordOf(row, { edited: true }),
      consumer: row.consumer,
      eventId: row.eventId ?? undefined,
      attempt: row.attempts + 1,
      removal: this.parts.rows.removal(row),
    });
    return afterRedelivery(report, row, settings);
  }

  /** False: it could not be written, and is to be tried again. */
  async #settled(row: ParkedRow, next: AfterRedelivery): Promise<boolean> {
    try {
      const isOurs = await this.#settle(row, next);
      if (!isOurs || next.step === 'done') await this.parts.keys.release(row);
      this.#isFailing = false;
      return true;
    } catch (error) {
      this.#tell(error);
      return false;
    }
  }

  /** False: the row has gone, or is somebody else's by now. */
  async #settle(row: ParkedRow, next: AfterRedelivery): Promise<boolean> {
    const { rows, emit } = this.parts;
    switch (next.step) {
      case 'done':
        return rows.remove(row); // a duplicate's row is there still
      case 'again':
        return rows.uncount(row, AGAIN_MS);
      case 'scheduled': {
        const reason = row.reason === 'behind' ? 'exhausted' : row.reason;
        const isOurs = await rows.settle(row, { ...next, reason });
        if (isOurs) emit({ name: 'retried', error: next.error, delayMs: next.delayMs, ...placeOfRow(row) });
        return isOurs;
      }
      case 'dead':
        return this.#bury(row, next);
    }
  }

  async #bury(row: ParkedRow, { error, noted, reason }: Extract<AfterRedelivery, { step: 'dead' }>): Promise<boolean> {
    const facts = {
      consumer: row.consumer,
      groupId: row.groupId,
      eventId: row.eventId ?? undefined,
      reason,
      error: noted,
      attempts: row.attempts + 1,
      rounds: row.rounds,
      replays: row.replays,
      firstFailedAt: row.firstFailedAt ?? noted.at,
      lastFailedAt: noted.at,
    };
    const isOurs = await this.parts.copies.around({ record: recordOf(row, { edited: false }), facts, error }, () =>
      this.parts.rows.settle(row, { noted, reason, delayMs: null, counts: true }),
    );
    if (!isOurs) return false;
    this.parts.emit({ name: 'parked', state: 'dead', reason, error, ...placeOfRow(row) });
    this.parts.log(
      `Given up after ${row.rounds} redeliveries: ${nameOf(row)} is dead (${noted.code}, ${noted.name}) and waits for a person`,
    );
    return true;
  }

  /** Once for each time it begins. */
  #tell(error: unknown): void {
    if (this.#isFailing) return;
    this.#isFailing = true;
    const { code, message } = noteOf(error, new Date());
    this.parts.log(`Parked events are not redelivered at the moment (${code}: ${message}); it is tried again`);
  }

  async #pause(): Promise<void> {
    if (this.#isWoken) return;
    await new Promise<void>((resolve) => {
      const timer = setTimeout(resolve, this.parts.pollMs);
      this.#endPause = () => {
        clearTimeout(timer);
        resolve();
      };
    });
    this.#endPause = undefined;
  }
}

function processDied(row: ParkedRow): IdempotencyError {
  return new IdempotencyError(
    'PROCESS_DIED',
    `The process died, or could not write the end, in the last of ${row.rounds - 1} redeliveries of ${nameOf(row)}. Look at what the handler does with it, then replay or discard it`,
    { facts: { consumer: row.consumer, topic: row.topic, partition: row.partition, offset: row.recordOffset } },
  );
}

function nameOf(row: ParkedRow): string {
  const event = row.eventId === null ? 'without an event id' : `event ${row.eventId}`;
  return `the parked record ${row.topic}/${row.partition}/${row.recordOffset} (${event}) of ${row.consumer}`;
}
