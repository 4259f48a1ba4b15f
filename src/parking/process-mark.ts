import { IdempotencyError } from '../shared/errors.js';
import type { TopicPlace } from '../shared/record.js';
import type { OwnTables } from '../shared/own-tables.js';

const DEATHS_TO_PARK = 3;

// Whoever finds another's mark knows that one died: an orderly end takes it away. The record that runs first now is the culprit, for what stands before it is a duplicate.
const MARK = `INSERT INTO running_records AS r (group_id, topic, partition, record_offset, instance) VALUES ($1, $2, $3, $4, $5)
ON CONFLICT (group_id, topic, partition) DO UPDATE SET record_offset = EXCLUDED.record_offset, instance = EXCLUDED.instance, started_at = now(),
  deaths = CASE WHEN r.record_offset = EXCLUDED.record_offset THEN r.deaths ELSE 0 END + CASE WHEN r.instance = EXCLUDED.instance THEN 0 ELSE 1 END
RETURNING deaths`;

const UNMARK = `WITH gone AS (DELETE FROM running_records WHERE group_id = $1 AND topic = $2 AND partition = $3 AND instance = $4 RETURNING 1)
SELECT count(*)::integer AS removed FROM gone`;

/**
 * Tells which record of a partition was running when a process died:
 * - one row is committed before the first record that runs after an assignment, and goes at any orderly end;
 * - a row left by another process counts one death for the record that runs first now; after three that record is refused, in this process as in the next;
 * - later records of the ownership cost nothing.
 */
export class ProcessMark {
  /** `unsure`: it was to be written, and nobody has said that it is; an earlier ownership of this process may have left one, too. */
  #row: 'none' | 'unsure' | 'stands' = 'unsure';
  /** Marking and unmarking, one after the other. */
  #last: Promise<unknown> = Promise.resolve();
  readonly #place: [string, string, number];

  constructor(
    private readonly tables: OwnTables,
    { groupId, topic, partition }: TopicPlace & { groupId: string },
    private readonly instance: string,
  ) {
    this.#place = [groupId, topic, partition];
  }

  /** undefined: it stands. Throws PROCESS_DIED, or DATABASE_UNAVAILABLE: the mark may or may not be written then. */
  set(offset: bigint): Promise<void> | undefined {
    if (this.#row === 'stands') return undefined;
    return this.#queued(() => this.#write(offset));
  }

  /** Never rejects: a mark that stays makes the next owner careful, no more. */
  async clear(): Promise<void> {
    await this.#queued(async () => {
      if (this.#row === 'none') return;
      this.#row = 'unsure';
      await this.tables.run(UNMARK, [...this.#place, this.instance]);
      this.#row = 'none';
    }).catch(() => undefined); // the row stays: see above
  }

  async #write(offset: bigint): Promise<void> {
    if (this.#row === 'stands') return; // that of a record beside it
    this.#row = 'unsure';
    const [row] = await this.tables.run<{ deaths: number }>(MARK, [...this.#place, offset.toString(), this.instance]);
    const deaths = row?.deaths ?? 0;
    if (deaths >= DEATHS_TO_PARK) throw processDied(this.#place, offset, deaths);
    this.#row = 'stands';
  }

  #queued<T>(work: () => Promise<T>): Promise<T> {
    const done = this.#last.then(work);
    this.#last = done.catch(() => undefined); // whoever asked for it hears of it
    return done;
  }
}

function processDied([, topic, partition]: [string, string, number], offset: bigint, deaths: number): IdempotencyError {
  return new IdempotencyError(
    'PROCESS_DIED',
    `${deaths} processes died while they handled the record at ${topic}/${partition}/${offset} (out of memory, a native crash, process.exit, or killed from outside), so it is ` +
      'parked instead of ending the next one. Look at what the handler does with it, then replay or discard it',
    { facts: { topic, partition, offset: offset.toString() } },
  );
}
