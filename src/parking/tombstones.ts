import type { OwnTables } from '../shared/own-tables.js';

const BATCH = 1000;

// due_at of a discarded row says when it was discarded.
const PURGE = `WITH old AS (SELECT id FROM parked_events WHERE state = 'discarded' AND due_at < now() - $1::float8 * interval '1 millisecond' LIMIT ${BATCH} FOR UPDATE SKIP LOCKED),
  gone AS (DELETE FROM parked_events p USING old WHERE p.id = old.id RETURNING 1)
SELECT count(*)::integer AS removed FROM gone`;

/** Discarded rows: kept so that a record Kafka brings again is not run, for as long as it may bring it. */
export class Tombstones {
  constructor(
    private readonly tables: OwnTables,
    private readonly keptMs: number,
  ) {}

  /** Deletes those that are old enough, some at a time. */
  async purge(): Promise<void> {
    for (let removed = BATCH; removed === BATCH;) {
      const [row] = await this.tables.run<{ removed: number }>(PURGE, [this.keptMs]);
      removed = row?.removed ?? 0;
    }
  }
}
