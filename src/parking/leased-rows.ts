import type { ParkReason, RowRemoval } from '../shared/parking.js';
import { HAS_EARLIER, historyEntry, historyWith, ROW, type ParkedRow } from './parked-row.js';
import type { FailedAttempt } from '../shared/parking.js';
import type { OwnTables } from '../shared/own-tables.js';

// The index parked_events_due is asked first: nothing due costs one probe. Two workers never lease one row, and never two rows of one key.
const LEASE = `WITH due AS (SELECT p.id, here.lease_ms FROM parked_events p JOIN unnest($1::text[], $2::float8[]) here (consumer, lease_ms) ON here.consumer = p.consumer
    WHERE p.state = 'scheduled' AND p.due_at <= now() AND NOT ${HAS_EARLIER}
    ORDER BY p.due_at LIMIT $3 FOR UPDATE OF p SKIP LOCKED),
  leased AS (UPDATE parked_events p SET rounds = p.rounds + 1, version = p.version + 1, due_at = now() + due.lease_ms * interval '1 millisecond' FROM due WHERE p.id = due.id RETURNING p.*)
SELECT ${ROW} FROM leased`;

const REMOVE = `WITH gone AS (DELETE FROM parked_events WHERE id = $1 AND version = $2 RETURNING 1) SELECT count(*)::integer AS changed FROM gone`;

const UNCOUNT = `WITH changed AS (UPDATE parked_events SET rounds = rounds - 1, version = version + 1, due_at = now() + $3::float8 * interval '1 millisecond'
  WHERE id = $1 AND version = $2 RETURNING 1) SELECT count(*)::integer AS changed FROM changed`;

const SETTLE = `WITH changed AS (UPDATE parked_events SET state = $3, reason = $4, error_code = $5, error_name = $6, error_message = $7, history = ${historyWith('$8')},
  first_failed_at = COALESCE(first_failed_at, $9), last_failed_at = $9, due_at = now() + $10::float8 * interval '1 millisecond', attempts = attempts + 1,
  rounds = rounds - CASE WHEN $11 THEN 0 ELSE 1 END, version = version + 1
  WHERE id = $1 AND version = $2 RETURNING 1) SELECT count(*)::integer AS changed FROM changed`;

interface Changed {
  readonly changed: number;
}

/** A lease outlives the handler's timeout by this: the transaction has ended by then. */
export const LEASE_MARGIN_MS = 30_000;

/** For how long a leased row of a consumer is left alone. */
export interface Lease {
  readonly consumer: string;
  readonly leaseMs: number;
}

/**
 * Parked rows taken for one round. A lease counts its round when it begins and is not held by a session: a process that dies in it leaves the round counted, and
 * the row comes up again when the lease is over. Whoever changes a row raises its version, so what was done under an older one changes nothing.
 */
export class LeasedRows {
  constructor(private readonly tables: OwnTables) {}

  take(leases: readonly Lease[], limit: number): Promise<ParkedRow[]> {
    const consumers = leases.map(({ consumer }) => consumer);
    const leaseMs = leases.map((lease) => lease.leaseMs);
    return this.tables.run<ParkedRow>(LEASE, [consumers, leaseMs, limit]);
  }

  /** For the transaction that handles the event. */
  removal({ id, version }: ParkedRow): RowRemoval {
    return {
      removeWith: async (query) => {
        const [row] = (await query(this.tables.text(REMOVE), [id, version])) as Changed[];
        return row?.changed === 1 ? 'removed' : 'gone';
      },
    };
  }

  /** By itself, for an event that was handled before. */
  remove({ id, version }: ParkedRow): Promise<boolean> {
    return this.#change(REMOVE, [id, version]);
  }

  /** The round did not count. False: somebody took or changed the row meanwhile. */
  uncount({ id, version }: ParkedRow, delayMs: number): Promise<boolean> {
    return this.#change(UNCOUNT, [id, version, delayMs]);
  }

  /** `delayMs` null: dead. `counts`: the round does. */
  settle(
    { id, version }: ParkedRow,
    {
      noted,
      reason,
      delayMs,
      counts,
    }: { noted: FailedAttempt; reason: ParkReason; delayMs: number | null; counts: boolean },
  ): Promise<boolean> {
    return this.#change(SETTLE, [
      id,
      version,
      delayMs === null ? 'dead' : 'scheduled',
      reason,
      noted.code,
      noted.name,
      noted.message,
      JSON.stringify(historyEntry(noted)),
      noted.at.toISOString(),
      delayMs,
      counts,
    ]);
  }

  async #change(statement: string, parameters: unknown[]): Promise<boolean> {
    const [row] = await this.tables.run<Changed>(statement, parameters);
    return row?.changed === 1;
  }
}
