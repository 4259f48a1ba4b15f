import { IdempotencyError } from '../shared/errors.js';
import type { Outcome } from '../shared/delivery.js';
import type { EmitEvent } from '../shared/events.js';
import { oneLine } from '../shared/one-line.js';
import type { ParkedState } from '../shared/parking.js';
import type { OwnTables } from '../shared/own-tables.js';
import type { HeldKeys } from './held-keys.js';
import type { ParkedEvent } from './parked-event.js';
import { chosenValues, filterValues, FITS, invalid, isParkedId, type ParkedFilter } from './parked-filter.js';
import { historyWith, parkedEvent, PLACE, placeOfRow, ROW, type ParkedRow, type PlacedRow } from './parked-row.js';
import type { Replays } from './replays.js';

const PAGE = 100;
const LARGEST_PAGE = 1000;

const LIST = `SELECT ${ROW} FROM parked_events WHERE ${FITS} AND id > $9::bigint ORDER BY id LIMIT $10`;

const GET = `SELECT ${ROW} FROM parked_events WHERE id = $1`;

const COUNT = `SELECT state, count(*)::integer AS count FROM parked_events GROUP BY state`;

// From here on due_at says when it was discarded.
const DISCARD = `WITH discarded AS (UPDATE parked_events SET state = 'discarded', due_at = now(), version = version + 1, history = ${historyWith('$9')}
  WHERE state <> 'discarded' AND ${FITS} RETURNING *)
SELECT ${PLACE} FROM discarded`;

const EDIT = `WITH edited AS (UPDATE parked_events SET edited_value = CASE WHEN $3 THEN $4::bytea ELSE edited_value END,
    header_names = COALESCE($5::text[], header_names), header_values = COALESCE($6::bytea[], header_values), version = version + 1, history = ${historyWith('$7')}
  WHERE id = $1 AND version = $2 AND state <> 'discarded' RETURNING *)
SELECT ${ROW} FROM edited`;

/**
 * What a person can do with parked events. Every change is noted in the event's history with who made it, and none is made twice by two at once.
 * Throws DATABASE_UNAVAILABLE when the database does not answer, OPTIONS_INVALID for an argument that cannot be meant.
 */
export class ParkedEvents {
  /** @internal Made by the module. */
  constructor(
    private readonly tables: OwnTables,
    private readonly keys: HeldKeys,
    private readonly replays: Replays,
    private readonly emit: EmitEvent,
  ) {}

  /** In the order in which they were parked; `after`: the last id of the page before. `limit` 100, at most 1000. */
  async list(filter: ParkedFilter, page: { after?: string; limit?: number } = {}): Promise<ParkedEvent[]> {
    const { after = '0', limit = PAGE } = page;
    if (!isParkedId(after)) throw invalid(`page.after is ${JSON.stringify(after)}, which is no id of a parked event`);
    if (!Number.isInteger(limit) || limit < 1 || limit > LARGEST_PAGE)
      throw invalid(`page.limit is ${limit}; it goes from 1 to ${LARGEST_PAGE}`);
    const rows = await this.tables.run<ParkedRow>(LIST, [...filterValues(filter), after, limit]);
    return rows.map(parkedEvent);
  }

  /** Throws PARKED_NOT_FOUND. */
  async get(id: string): Promise<ParkedEvent> {
    const [row] = isParkedId(id) ? await this.tables.run<ParkedRow>(GET, [id]) : [];
    if (row === undefined) throw notFound(id);
    return parkedEvent(row);
  }

  async count(): Promise<Record<ParkedState, number>> {
    const counts = { scheduled: 0, dead: 0, held: 0, discarded: 0 };
    for (const { state, count } of await this.tables.run<{ state: ParkedState; count: number }>(COUNT, []))
      counts[state] = count;
    return counts;
  }

  /**
   * Delivers the chosen events now, once, each to its one consumer, in the order of their topic, partition and offset; gives how many ended how. One that is handled
   * leaves the table in that transaction, one that fails stays as it was, and one with an earlier event of its key in front of it is not run (`behind`).
   * Discarded ones are never chosen. `dryRun`: runs nothing, and counts what has a claim already as `duplicate` and what would run as `processed`.
   *
   * Throws NO_HANDLER when this application has no handler for one of them.
   */
  async replay(
    filter: ParkedFilter,
    options: { by: string; dryRun?: boolean },
  ): Promise<Record<Outcome | 'behind', number>> {
    const values = chosenValues(filter);
    const by = said('by', options.by);
    return options.dryRun === true ? this.replays.rehearse(values) : this.replays.run(values, by);
  }

  /** They stay as tombstones, so that their records are not run when Kafka brings them again, and hold nothing any more. Gives how many there were. */
  async discard(filter: ParkedFilter, options: { by: string; why: string }): Promise<number> {
    const values = chosenValues(filter);
    const [by, why] = [said('by', options.by), said('why', options.why)];
    const entry = JSON.stringify({ at: new Date().toISOString(), by, why });
    const rows = await this.tables.run<PlacedRow>(DISCARD, [...values, entry]);
    for (const row of rows) this.emit({ name: 'discarded', by, why, ...placeOfRow(row) });
    if (rows.length > 0) await this.keys.releaseAll();
    return rows.length;
  }

  /**
   * Puts a value or headers in the place of the record's for every later delivery; the original value stays beside it, and so does the event id. `version` is that of
   * the event as it was read. Throws PARKED_CHANGED when it has changed since or was discarded, PARKED_NOT_FOUND when it is gone.
   */
  async edit(
    id: string,
    change: { value?: Buffer; headers?: readonly (readonly [string, Buffer])[]; version: number; by: string },
  ): Promise<ParkedEvent> {
    const { value, headers, version } = change;
    const edited = [...(value === undefined ? [] : ['value']), ...(headers === undefined ? [] : ['headers'])];
    if (edited.length === 0) throw invalid('edit() is given neither a value nor headers');
    const entry = JSON.stringify({ at: new Date().toISOString(), by: said('by', change.by), edited });
    if (!isParkedId(id)) throw notFound(id);
    const [row] = await this.tables.run<ParkedRow>(EDIT, [
      id,
      version,
      value !== undefined,
      value ?? null,
      headers?.map(([name]) => name.replaceAll('\0', '\uFFFD')) ?? null,
      headers?.map(([, bytes]) => bytes) ?? null,
      entry,
    ]);
    if (row !== undefined) return parkedEvent(row);
    const now = await this.get(id);
    throw new IdempotencyError(
      'PARKED_CHANGED',
      `Parked event ${id} is not as it was read: its version is ${now.version} and its state ${now.state}, and the edit is of version ${version}. Read it again and repeat the edit`,
    );
  }
}

/** Who and why stand in the history for good. */
function said(name: 'by' | 'why', text: unknown): string {
  if (typeof text === 'string' && text.trim() !== '') return oneLine(text, 1024);
  throw invalid(`${name} is ${JSON.stringify(text)}; the history needs to say ${name === 'by' ? 'who' : 'why'}`);
}

function notFound(id: unknown): IdempotencyError {
  return new IdempotencyError(
    'PARKED_NOT_FOUND',
    `There is no parked event ${JSON.stringify(id)}. It has been processed, or was never there; list() gives those there are`,
  );
}
