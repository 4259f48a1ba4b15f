import { IdempotencyError } from '../shared/errors.js';
import type { Outcome } from '../shared/delivery.js';
import type { EmitEvent } from '../shared/events.js';
import type { FailedAttempt, Redelivery } from '../shared/parking.js';
import type { OwnTables } from '../shared/own-tables.js';
import type { HeldKey, HeldKeys } from './held-keys.js';
import { LEASE_MARGIN_MS, type LeasedRows } from './leased-rows.js';
import { FITS } from './parked-filter.js';
import { HAS_EARLIER, historyWith, placeOfRow, recordOf, ROW, type ParkedRow } from './parked-row.js';

const CHOSEN = `SELECT id, consumer, topic, partition, hold_key AS "holdKey" FROM parked_events WHERE state <> 'discarded' AND ${FITS} ORDER BY topic, partition, record_offset, id`;

// What is chosen is taken for processed when what stands behind it is looked at: that is the order in which it would go.
const REHEARSE = `WITH chosen AS (SELECT * FROM parked_events WHERE state <> 'discarded' AND ${FITS})
SELECT EXISTS (SELECT FROM parked_events e WHERE e.consumer = p.consumer AND e.topic = p.topic AND e.hold_key = p.hold_key AND e.partition = p.partition
    AND (e.record_offset, e.id) < (p.record_offset, p.id) AND e.state <> 'discarded' AND e.id NOT IN (SELECT id FROM chosen)) AS behind,
  EXISTS (SELECT FROM processed_events c WHERE c.consumer = p.consumer AND c.event_id = p.event_id) AS claimed
FROM chosen p`;

// A scheduled row is put off, so that the worker leaves it alone meanwhile; its time comes back with the state.
const TAKE = `WITH before AS (SELECT p.id, p.due_at, ${HAS_EARLIER} AS behind FROM parked_events p WHERE p.id = $1 AND p.state <> 'discarded' FOR UPDATE SKIP LOCKED),
  taken AS (UPDATE parked_events p SET version = p.version + 1, due_at = CASE WHEN p.state = 'scheduled' THEN now() + $2::float8 * interval '1 millisecond' ELSE p.due_at END
    FROM before WHERE p.id = before.id AND NOT before.behind RETURNING p.*)
SELECT before.behind, before.due_at AS "dueBefore", kept.* FROM before LEFT JOIN (SELECT ${ROW} FROM taken) kept ON true`;

const GIVE_BACK = `WITH changed AS (UPDATE parked_events SET version = version + 1, due_at = $3, replays = replays + 1, history = ${historyWith('$4')},
    attempts = attempts + CASE WHEN $5::text IS NULL THEN 0 ELSE 1 END, error_code = COALESCE($5, error_code), error_name = COALESCE($6, error_name), error_message = COALESCE($7, error_message),
    first_failed_at = COALESCE(first_failed_at, $8::timestamptz), last_failed_at = COALESCE($8, last_failed_at)
  WHERE id = $1 AND version = $2 RETURNING 1) SELECT count(*)::integer AS changed FROM changed`;

type Counts = Record<Outcome | 'behind', number>;
type Taken = Partial<ParkedRow> & { readonly behind: boolean; readonly dueBefore: Date | null };

/** Delivers chosen parked events on a person's word, one after the other. */
export class Replays {
  #redelivery: Redelivery | undefined;

  constructor(
    private readonly parts: {
      readonly tables: OwnTables;
      readonly rows: LeasedRows;
      readonly keys: HeldKeys;
      readonly emit: EmitEvent;
    },
  ) {}

  open(redelivery: Redelivery): void {
    this.#redelivery = redelivery;
  }

  /** `chosen`: the values of a filter. */
  async run(chosen: unknown[], by: string): Promise<Counts> {
    const rows = await this.parts.tables.run<HeldKey & { id: string }>(CHOSEN, chosen);
    const redelivery = this.#redeliveryFor(rows.map(({ consumer }) => consumer));
    const last = new Map(rows.map((row) => [keyName(row), row]));
    const counts = none();
    for (const row of rows) {
      const leaseMs = redelivery.consumers.get(row.consumer)!.timeoutMs + LEASE_MARGIN_MS;
      const outcome = await this.#replay(row.id, leaseMs, redelivery, by);
      if (outcome !== 'gone') counts[outcome] += 1;
      // Not before: the worker would take what is chosen too, and this run would find it gone.
      if (last.get(keyName(row)) === row) await this.parts.keys.release(row);
    }
    return counts;
  }

  async rehearse(chosen: unknown[]): Promise<Counts> {
    const counts = none();
    for (const { behind, claimed } of await this.parts.tables.run<{ behind: boolean; claimed: boolean }>(
      REHEARSE,
      chosen,
    )) {
      if (behind) counts.behind += 1;
      else counts[claimed ? 'duplicate' : 'processed'] += 1;
    }
    return counts;
  }

  async #replay(id: string, leaseMs: number, redelivery: Redelivery, by: string): Promise<Outcome | 'behind' | 'gone'> {
    const [taken] = await this.parts.tables.run<Taken>(TAKE, [id, leaseMs]);
    if (taken === undefined) return 'gone'; // processed, discarded, or in another's hands since it was chosen
    if (taken.behind) return 'behind';
    const { behind: _, dueBefore, ...row } = taken as Taken & ParkedRow;
    const report = await redelivery.redeliver({
      record: recordOf(row, { edited: true }),
      consumer: row.consumer,
      eventId: row.eventId ?? undefined,
      attempt: row.attempts + 1,
      removal: this.parts.rows.removal(row),
    });
    const { outcome } = report;
    if (outcome === 'processed' || outcome === 'duplicate' || outcome === 'stale') {
      await this.parts.rows.remove(row); // a duplicate's row is there still
    } else {
      await this.#giveBack(row, dueBefore, { by, outcome }, report.outcome === 'failed' ? report.noted : undefined);
    }
    this.parts.emit({ name: 'replayed', outcome, by, ...placeOfRow(row) });
    return outcome;
  }

  async #giveBack(
    row: ParkedRow,
    dueBefore: Date | null,
    replay: { by: string; outcome: Outcome },
    noted: FailedAttempt | undefined,
  ): Promise<void> {
    const at = new Date().toISOString();
    await this.parts.tables.run(GIVE_BACK, [
      row.id,
      row.version,
      dueBefore?.toISOString() ?? null,
      JSON.stringify({ at, ...replay }),
      noted?.code ?? null,
      noted?.name ?? null,
      noted?.message ?? null,
      noted?.at.toISOString() ?? null,
    ]);
  }

  #redeliveryFor(consumers: readonly string[]): Redelivery {
    const redelivery = this.#redelivery;
    const absent = [...new Set(consumers)].filter((consumer) => redelivery?.consumers.has(consumer) !== true);
    if (redelivery !== undefined && absent.length === 0) return redelivery;
    throw new IdempotencyError(
      'NO_HANDLER',
      `There is nothing here to replay to: this application has no event handler, or none yet, for ${absent.join(', ') || 'any consumer'}. Replay where those handlers listen, or choose others`,
    );
  }
}

function keyName({ consumer, topic, partition, holdKey }: HeldKey): string {
  return JSON.stringify([consumer, topic, partition, holdKey?.toString('latin1')]);
}

function none(): Counts {
  return { processed: 0, duplicate: 0, stale: 0, failed: 0, busy: 0, unknown: 0, behind: 0 };
}
