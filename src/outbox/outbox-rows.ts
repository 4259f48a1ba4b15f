import { SERVER_RUN } from '../transaction/server-run.js';
import type { FailedRow } from './delivery-run.js';
import type { OpenTransaction, ReadMoment } from './late-commits.js';
import type { OutboxRow } from './outbox-row.js';
import type { OutboxTables } from './outbox-tables.js';
import type { Positions, Snapshot } from './scan.js';

// Each shard has a place of its own to go on from, and gives so many rows that together they fill a batch; of those, in the order of all ids, as many as fit. Where a transaction
// that was open at the read before has ended by the snapshot of this one, it begins where that may have begun. One row at least, for the snapshot.
const READ = `SELECT p.snapshot::text AS snapshot, p.above::text AS "lookedBackTo", pg_current_xact_id()::text AS after, p.run, t.id::text AS id, shard, event_id AS "eventId", topic, partition, message_key AS key, message_value AS value,
  header_names AS "headerNames", header_values AS "headerValues", attempts, "waitMs"
FROM (SELECT pg_current_snapshot() AS snapshot, ${SERVER_RUN} AS run, least(min(above) FILTER (WHERE pg_visible_in_snapshot(xid, pg_current_snapshot())),
    CASE WHEN pg_snapshot_xmax(pg_current_snapshot()) > $11::xid8 THEN $12::bigint END) AS above
  FROM unnest($8::xid8[], $9::bigint[]) AS o (xid, above)) p
LEFT JOIN LATERAL (SELECT m.*, sum(m.size) OVER (ORDER BY m.id) - m.size AS before
  FROM unnest($1::smallint[], $2::bigint[]) AS s (nr, after)
  CROSS JOIN LATERAL (SELECT o.*, (extract(epoch FROM o.due_at - now()) * 1000)::double precision AS "waitMs",
      coalesce(octet_length(o.message_value), 0) + coalesce(octet_length(o.message_key), 0) AS size
    FROM outbox_messages o
    WHERE o.state = 'pending' AND (o.shard, o.id) > (s.nr, least(s.after, p.above)) AND (o.shard, o.id) <= (s.nr, 9223372036854775807) AND o.id <> ALL ($10::bigint[])
      AND o.topic <> ALL ($3::text[]) AND (o.message_key IS NULL OR o.message_key <> ALL ($4::bytea[]))
    ORDER BY o.shard, o.id LIMIT $5) m
  ORDER BY m.id LIMIT $6) t ON t.before < $7
ORDER BY t.id`;

const SNAPSHOT = `SELECT pg_snapshot_xmin(s)::text AS xmin, pg_snapshot_xmax(s)::text AS xmax FROM pg_current_snapshot() s`;

// Whoever has lost its shard has another token, or none, and writes nothing. A server that has lost commits gives their ids again: only with its event's id it is the row that was read.
const OURS = `outbox_shards s WHERE s.shard = o.shard AND s.owner = $1 AND s.token = ($2::bigint[])[o.shard + 1] AND o.id = g.id AND o.event_id = g.event_id`;

const REMOVE = `WITH gone AS (DELETE FROM outbox_messages o USING unnest($3::bigint[], $4::text[]) AS g (id, event_id), ${OURS} RETURNING 1) SELECT count(*)::integer AS count FROM gone`;

const FAIL = `WITH told AS (UPDATE outbox_messages o SET attempts = o.attempts + 1, due_at = now() + g.wait * interval '1 millisecond', error_code = g.code, error_message = g.message,
    state = CASE WHEN g.parks THEN 'parked' ELSE 'pending' END
  FROM unnest($3::bigint[], $4::text[], $5::double precision[], $6::text[], $7::text[], $8::boolean[]) AS g (id, event_id, wait, code, message, parks), ${OURS} RETURNING o.id)
SELECT id::text AS id FROM told`;

const BYTES = 16_777_216;

export interface ReadRequest {
  readonly shards: readonly number[];
  readonly cursors: Positions;
  readonly topics: readonly string[];
  readonly keys: readonly Buffer[];
  readonly perShard: number;
  readonly batch: number;
  /** At the read before. */
  readonly open: readonly OpenTransaction[];
  readonly unlisted: OpenTransaction;
  /** Ids of rows that are being sent or deleted. */
  readonly inHand: readonly bigint[];
}

export interface ReadAnswer {
  readonly rows: OutboxRow[];
  readonly moment: ReadMoment;
  /** Of the server. */
  readonly run: string;
  /** Where it began in place of later cursors, if it had to. */
  readonly lookedBackTo: bigint | undefined;
  /** There may be more in shards that have none in the answer. */
  readonly isFull: boolean;
}

/** Under which tokens a statement may write. */
export interface Claimed {
  readonly owner: string;
  readonly tokens: readonly (string | null)[];
}

export interface ToldFailure extends FailedRow {
  readonly waitMs: number;
  readonly code: string;
  readonly message: string;
  readonly parks: boolean;
}

type FoundRow = Omit<OutboxRow, 'id'> & {
  readonly id: string | null;
  readonly snapshot: string;
  readonly after: string;
  readonly run: string;
  readonly lookedBackTo: string | null;
};

/** As the statement counts it. */
function sizeOf({ key, value }: OutboxRow): number {
  return (key?.length ?? 0) + (value?.length ?? 0);
}

/** The rows of the outbox as the relay reads and ends them. */
export class OutboxRows {
  constructor(private readonly tables: OutboxTables) {}

  /** In the order of their ids; at least one row, if there is one, however large. */
  async read({
    shards,
    cursors,
    topics,
    keys,
    perShard,
    batch,
    open,
    unlisted,
    inHand,
  }: ReadRequest): Promise<ReadAnswer> {
    const places = shards.map((shard) => cursors[shard]!.toString());
    const found = await this.tables.run<FoundRow>(READ, [
      [...shards],
      places,
      [...topics],
      [...keys],
      perShard,
      batch,
      BYTES,
      open.map(({ xid }) => xid),
      open.map(({ above }) => above.toString()),
      inHand.map(String),
      unlisted.xid,
      unlisted.above.toString(),
    ]);
    const rows = found.filter(({ id }) => id !== null).map((row) => Object.assign(row, { id: BigInt(row.id!) }));
    const { snapshot, after, run, lookedBackTo } = found[0]!;
    const isFull = rows.length >= batch || rows.reduce((sum, row) => sum + sizeOf(row), 0) >= BYTES;
    return {
      rows,
      moment: { snapshot, after: BigInt(after) },
      run,
      lookedBackTo: lookedBackTo === null ? undefined : BigInt(lookedBackTo),
      isFull,
    };
  }

  async snapshot(): Promise<Snapshot> {
    const [row] = await this.tables.run<{ xmin: string; xmax: string }>(SNAPSHOT, []);
    return { xmin: BigInt(row!.xmin), xmax: BigInt(row!.xmax) };
  }

  /** Gives how many went. */
  async remove({ owner, tokens }: Claimed, rows: readonly OutboxRow[]): Promise<number> {
    const [ids, eventIds] = [rows.map(({ id }) => id.toString()), rows.map(({ eventId }) => eventId)];
    const [row] = await this.tables.run<{ count: number }>(REMOVE, [owner, [...tokens], ids, eventIds]);
    return row!.count;
  }

  /** Gives the ids of those it was written for. */
  async fail({ owner, tokens }: Claimed, failures: readonly ToldFailure[]): Promise<Set<bigint>> {
    const rows = await this.tables.run<{ id: string }>(FAIL, [
      owner,
      [...tokens],
      failures.map(({ row }) => row.id.toString()),
      failures.map(({ row }) => row.eventId),
      failures.map(({ waitMs }) => waitMs),
      failures.map(({ code }) => code),
      failures.map(({ message }) => message),
      failures.map(({ parks }) => parks),
    ]);
    return new Set(rows.map(({ id }) => BigInt(id)));
  }
}
