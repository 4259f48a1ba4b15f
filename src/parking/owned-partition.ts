import { backoffMs } from '../shared/backoff.js';
import { IdempotencyError } from '../shared/errors.js';
import { HISTORY_ENTRIES } from '../shared/failed-attempt.js';
import type { ParkedState, ParkRequest, PartitionParking } from '../shared/parking.js';
import type { OwnTables } from '../shared/own-tables.js';
import type { DeadLetterCopies } from './dead-letter-copies.js';
import type { HeldKeys } from './held-keys.js';
import type { ParkedMemory } from './parked-memory.js';
import { historyEntry } from './parked-row.js';
import type { ProcessMark } from './process-mark.js';
import { contentOf, holdKeyOf, identityOf } from './stored-record.js';

const PARK = `INSERT INTO parked_events (consumer, topic, partition, record_offset, record_timestamp, event_id, record_key, record_value, header_names, header_values,
  group_id, state, hold_key, reason, error_code, error_name, error_message, attempts, history, first_failed_at, last_failed_at, due_at)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, $19, $20, $21, now() + $22::float8 * interval '1 millisecond')
ON CONFLICT (consumer, topic, partition, record_offset, record_timestamp) DO NOTHING RETURNING state`;

const STATE = `SELECT state FROM parked_events WHERE consumer = $1 AND topic = $2 AND partition = $3 AND record_offset = $4 AND record_timestamp = $5`;

export interface OwnedPartitionParts {
  readonly groupId: string;
  readonly tables: OwnTables;
  readonly memory: ParkedMemory;
  readonly keys: HeldKeys;
  readonly mark: ProcessMark;
  readonly copies: DeadLetterCopies;
  /** The mark of another process was there. */
  readonly isSuspect: boolean;
}

/** See {@link PartitionParking}. */
export class OwnedPartition implements PartitionParking {
  #isSuspect: boolean;

  constructor(private readonly parts: OwnedPartitionParts) {
    this.#isSuspect = parts.isSuspect;
  }

  get isSuspect(): boolean {
    return this.#isSuspect;
  }

  get hasParked(): boolean {
    return !this.parts.memory.isEmpty;
  }

  concerns({ consumer, record, holdKey }: Pick<ParkRequest, 'record' | 'consumer' | 'holdKey'>): boolean {
    const { memory } = this.parts;
    if (memory.isFree(consumer)) return false;
    const key = holdKey ? holdKeyOf(record.key) : null;
    return (key !== null && memory.holds(consumer, key)) || memory.hasParked(consumer, record);
  }

  gate(
    request: Pick<ParkRequest, 'record' | 'consumer' | 'eventId' | 'holdKey'>,
  ): Promise<'run' | 'held' | 'parked'> | undefined {
    const { memory } = this.parts;
    const { consumer, record } = request;
    if (memory.isFree(consumer)) return undefined;
    const key = request.holdKey ? holdKeyOf(record.key) : null;
    const holdKey = key !== null && memory.holds(consumer, key) ? key : null;
    if (holdKey === null && !memory.hasParked(consumer, record)) return undefined;
    return this.#place({ ...request, holdKey });
  }

  async park(request: ParkRequest): Promise<ParkedState> {
    const { record, consumer } = request;
    const holdKey = request.holdKey ? holdKeyOf(record.key) : null;
    const state = isScheduled(request) ? 'scheduled' : 'dead';
    const insert = () => this.#insert(request, state, holdKey);
    const parked = await (state === 'dead'
      ? this.parts.copies.around(deadRecord(request, this.parts.groupId), insert)
      : insert());
    this.parts.memory.add(consumer, { holdKey, record });
    return parked;
  }

  mark(offset: bigint): Promise<void> | undefined {
    return this.parts.mark.set(offset);
  }

  survived(): void {
    this.#isSuspect = false;
  }

  unmark(): Promise<void> {
    return this.parts.mark.clear();
  }

  async #place(request: Parameters<HeldKeys['place']>[0]): Promise<'run' | 'held' | 'parked'> {
    const placed = await this.parts.keys.place(request);
    if (placed !== 'free') return placed;
    this.parts.memory.forget(request.consumer, request.holdKey, request.record.offset);
    return 'run';
  }

  /** One statement by itself. A row that is there already stays as it is. */
  async #insert(request: ParkRequest, state: 'scheduled' | 'dead', holdKey: Buffer | null): Promise<ParkedState> {
    const { tables } = this.parts;
    const identity = identityOf(request.consumer, request.record);
    try {
      for (;;) {
        const values = [...identity, ...this.#rowValues(request, state, holdKey)];
        const [written] = await tables.run<{ state: ParkedState }>(PARK, values);
        if (written !== undefined) return written.state;
        const [found] = await tables.run<{ state: ParkedState }>(STATE, [...identity]);
        if (found !== undefined) return found.state; // else it went between the two
      }
    } catch (cause) {
      throw parkFailed(request, cause);
    }
  }

  #rowValues(request: ParkRequest, state: 'scheduled' | 'dead', holdKey: Buffer | null): unknown[] {
    const { record, eventId, reason, attempts, failures, redelivery } = request;
    const last = failures.at(-1);
    return [
      ...contentOf(record, eventId),
      this.parts.groupId,
      state,
      holdKey,
      reason,
      last?.code ?? null,
      last?.name ?? null,
      last?.message ?? null,
      attempts,
      JSON.stringify(failures.slice(-HISTORY_ENTRIES).map(historyEntry)),
      failures.at(0)?.at.toISOString() ?? null,
      last?.at.toISOString() ?? null,
      state === 'scheduled' ? backoffMs(redelivery, 1) : null,
    ];
  }
}

/** What no further attempt can help does not come back by itself. */
function isScheduled({ reason, redelivery }: ParkRequest): boolean {
  return reason === 'exhausted' && redelivery.rounds > 0;
}

function deadRecord({ record, consumer, eventId, reason, attempts, failures, error }: ParkRequest, groupId: string) {
  const facts = {
    consumer,
    groupId,
    eventId,
    reason,
    error: failures.at(-1),
    attempts,
    rounds: 0,
    replays: 0,
    firstFailedAt: failures.at(0)?.at ?? null,
    lastFailedAt: failures.at(-1)?.at ?? null,
  };
  return { record, facts, error };
}

function parkFailed({ record, consumer, eventId }: ParkRequest, cause: unknown): IdempotencyError {
  const { topic, partition } = record;
  const offset = record.offset.toString();
  return new IdempotencyError(
    'PARK_FAILED',
    `The event at ${topic}/${partition}/${offset} could not be parked for ${consumer}, so its offset stays and it is tried again. Look at the database`,
    {
      cause,
      retryable: true,
      facts: { consumer, topic, partition, offset, ...(eventId !== undefined && { eventId }) },
    },
  );
}
