import { statfs } from 'node:fs/promises';
import { dirname } from 'node:path';
import type { DataSource } from 'typeorm';
import type { Services } from '../services/services.js';
import { eventIdInSql, type IdVersion } from './event-ids.js';
import { CONSUMER } from './workload.js';

const AT_ONCE = 1_000_000;
/** A row with its index, and what else is written meanwhile: WAL, the backlogs. */
const DISK = { bytesPerRow: 250, besides: 10_000_000_000 };

/** Rows as this consumer's events of the last two weeks would have left them: one each 24 ms, in the order in which they came. */
const FILL = (ids: IdVersion) => `
  INSERT INTO processed_events (processed_at, record_offset, fingerprint, partition, consumer, event_id, topic)
  SELECT at, number / 6, (random() * 9e18)::bigint, number % 6, '${CONSUMER}', ${eventIdInSql(ids)}, 'orders.created'
  FROM generate_series($1::bigint, $2::bigint) AS number,
       LATERAL (SELECT now() - interval '14 days' + number * interval '24 milliseconds' AS at) AS time`;

/** The table processed_events, made as large as it would be in a service that has run for long. */
export class OldEvents {
  constructor(
    private readonly db: DataSource,
    private readonly ids: IdVersion,
  ) {}

  /** Throws if the largest table does not fit on the database's disk, where that is known. */
  static async checkDisk(rows: number, { postgres }: Services): Promise<void> {
    if (postgres === undefined) return;
    const { bavail, bsize } = await statfs(dirname(postgres.logFile));
    const [free, needed] = [bavail * bsize, rows * DISK.bytesPerRow + DISK.besides];
    if (free >= needed) return;
    const gigabytes = (bytes: number) => `${Math.ceil(bytes / 1e9)} GB`;
    throw new Error(
      `${rows} rows need about ${gigabytes(needed)} of disk, but ${gigabytes(free)} are free. Give fewer --rows.`,
    );
  }

  /**
   * Empties the table, fills it with so many rows, and leaves it as autovacuum would have by now. Always from the start: events of a run that are there
   * already are younger, and what is put in front of them would split each index page of version 7 in half.
   */
  async fillWith(rows: number): Promise<void> {
    await this.db.query('TRUNCATE processed_events');
    for (let filled = 0; filled < rows; filled += AT_ONCE)
      await this.db.query(FILL(this.ids), [filled, Math.min(rows, filled + AT_ONCE) - 1]);
    await this.db.query('VACUUM (ANALYZE) processed_events');
  }

  /** Table and indexes over rows. */
  async bytesPerRow(rows: number): Promise<number | null> {
    if (rows === 0) return null;
    const [{ bytes }] = await this.db.query<[{ bytes: string }]>(
      `SELECT pg_total_relation_size('processed_events') AS bytes`,
    );
    return Math.round(Number(bytes) / rows);
  }

  /** So that each run begins as far from one, and none gets that of the filling. */
  async checkpoint(): Promise<void> {
    await this.db.query('CHECKPOINT');
  }
}
