import type { DataSource } from 'typeorm';

/** What the database says of the events that Kafka acknowledged. */
export interface Ledger {
  /** Rows of the handler's table. */
  readonly applied: number;
  /** Acknowledged events without a row. */
  readonly lost: number;
  /** Rows beyond the first of an event. */
  readonly doubled: number;
  /** Rows that were not committed yet when a later event of their key was applied. */
  readonly outOfOrder: number;
  /** From {@link databaseTime} at the start to the last row. */
  readonly seconds: number;
}

const APPLIED = `SELECT count(*)::integer AS applied FROM payments`;

const LOST = `SELECT sent.id FROM unnest($1::text[]) AS sent (id) WHERE NOT EXISTS (SELECT FROM payments p WHERE p.order_id = sent.id)`;

const DOUBLED = `
SELECT order_id AS id FROM (SELECT order_id, row_number() OVER (PARTITION BY order_id ORDER BY id) AS copy FROM payments) AS copies WHERE copy > 1`;

/**
 * The order of rows alone (the identity column) would be the order of inserts. What counts is the order of commits, and that is asked here: which rows
 * could the transaction of a later event not see yet? So it also finds a later event applied while an earlier one was still under way.
 */
const OUT_OF_ORDER = `
SELECT p.order_id AS id FROM payments p
WHERE EXISTS (
  SELECT FROM payments later
  WHERE later.customer = p.customer AND later.order_number > p.order_number
    AND CASE WHEN later.written_by = p.written_by THEN later.id < p.id ELSE NOT pg_visible_in_snapshot(p.written_by, later.saw) END)`;

const SECONDS = `SELECT extract(epoch FROM max(paid_at) - $1::timestamptz)::float8 AS seconds FROM payments`;

/** For the log, when something is wrong: the event's rows, and where the record was when it was claimed. */
const TRACES = `
SELECT wanted.id AS event, p.id AS row, p.customer, p.order_number, p.paid_at, p.written_by::text, p.saw::text,
  e.partition, e.record_offset, e.processed_at
FROM unnest($1::text[]) AS wanted (id)
  LEFT JOIN payments p ON p.order_id = wanted.id
  LEFT JOIN processed_events e ON e.event_id = wanted.id
ORDER BY e.partition, e.record_offset, p.id`;

const TRACES_AT_MOST = 50;

export async function appliedRows(database: DataSource): Promise<number> {
  const [row] = await database.query<{ applied: number }[]>(APPLIED);
  return row?.applied ?? 0;
}

/** The database's own clock, by which rows are dated. */
export async function databaseTime(database: DataSource): Promise<Date> {
  const [row] = await database.query<{ now: Date }[]>(`SELECT clock_timestamp() AS now`);
  return (row as { now: Date }).now;
}

/** Nothing may be running any more. `onWrong` gets the traces of what is wrong, for the log. */
export async function readLedger(
  database: DataSource,
  sent: { readonly ids: ReadonlySet<string>; readonly since: Date },
  onWrong: (trace: unknown) => void,
): Promise<Ledger> {
  const ids = async (sql: string, parameters: unknown[] = []) =>
    (await database.query<{ id: string }[]>(sql, parameters)).map(({ id }) => id);
  const lost = await ids(LOST, [[...sent.ids]]);
  const doubled = await ids(DOUBLED);
  const outOfOrder = await ids(OUT_OF_ORDER);
  for (const [what, wrong] of Object.entries({ lost, doubled, outOfOrder })) {
    if (wrong.length === 0) continue;
    const traces = await database.query<unknown[]>(TRACES, [wrong.slice(0, TRACES_AT_MOST)]);
    traces.forEach((trace) => onWrong({ what, ...(trace as object) }));
  }
  const [time] = await database.query<{ seconds: number | null }[]>(SECONDS, [sent.since]);
  return {
    applied: await appliedRows(database),
    lost: lost.length,
    doubled: doubled.length,
    outOfOrder: outOfOrder.length,
    seconds: time?.seconds ?? 0,
  };
}
