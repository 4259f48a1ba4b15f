import type { StoredRecord } from '../shared/parking.js';
import type { OwnTables } from '../shared/own-tables.js';
import { contentOf, identityOf } from './stored-record.js';

const SAME_RECORD = `consumer = $1::text AND topic = $2::text AND partition = $3::integer AND record_offset = $4::bigint AND record_timestamp = $5::timestamptz`;
const SAME_KEY = `consumer = $1::text AND topic = $2::text AND partition = $3::integer AND hold_key = $6::bytea AND state <> 'discarded'`;

// Without the second condition the insert would wait for a redelivery of this very record.
const HOLD = `INSERT INTO parked_events (consumer, topic, partition, record_offset, record_timestamp, hold_key, group_id, state, reason,
  event_id, record_key, record_value, header_names, header_values)
SELECT $1::text, $2::text, $3::integer, $4::bigint, $5::timestamptz, $6::bytea, $7::text, 'held', 'behind', $8::text, $9::bytea, $10::bytea, $11::text[], $12::bytea[]
WHERE EXISTS (SELECT FROM parked_events WHERE ${SAME_KEY}) AND NOT EXISTS (SELECT FROM parked_events WHERE ${SAME_RECORD})
ON CONFLICT (consumer, topic, partition, record_offset, record_timestamp) DO NOTHING RETURNING id`;

const LOOK = `SELECT EXISTS (SELECT FROM parked_events WHERE ${SAME_RECORD}) AS parked, EXISTS (SELECT FROM parked_events WHERE ${SAME_KEY}) AS behind`;

const RELEASED = `released AS (UPDATE parked_events p SET state = 'scheduled', due_at = now(), version = p.version + 1 FROM first
    WHERE p.id = first.id AND first.state = 'held' AND p.state = 'held' RETURNING 1)
SELECT count(*)::integer AS released FROM released`;

const RELEASE = `WITH first AS (SELECT id, state FROM parked_events WHERE consumer = $1 AND topic = $2 AND partition = $3 AND hold_key = $4 AND state <> 'discarded'
    ORDER BY record_offset, id LIMIT 1),
  ${RELEASED}`;

// By sorting: looked at one by one, the many events behind one dead one would each search all the others.
const RELEASE_ALL = `WITH first AS (SELECT DISTINCT ON (consumer, topic, hold_key, partition) id, state FROM parked_events WHERE hold_key IS NOT NULL AND state <> 'discarded'
    ORDER BY consumer, topic, hold_key, partition, record_offset, id),
  ${RELEASED}`;

/** An event and the key it may be held by; null: by none. */
export interface HoldRequest {
  readonly record: StoredRecord;
  readonly consumer: string;
  readonly eventId: string | undefined;
  readonly holdKey: Buffer | null;
}

/** The key of a parked row. */
export interface HeldKey {
  readonly consumer: string;
  readonly topic: string;
  readonly partition: number;
  readonly holdKey: Buffer | null;
}

/**
 * The order behind a parked event:
 * - a later event of its key is stored as `held` while any row of the key stands;
 * - the lowest row of a key, when it is a held one, becomes `scheduled` and due. Whoever takes a row of the key away asks for that after its commit, and whoever
 *   stored a held row asks after its own: the later of the two sees the other. A crash in between is mended by {@link HeldKeys.releaseAll}.
 */
export class HeldKeys {
  constructor(
    private readonly tables: OwnTables,
    private readonly groupId: string,
    /** Called when an event has become due. */
    private readonly wake: () => void,
  ) {}

  /** What parked rows mean for a record; `free`: none does any more. */
  async place(request: HoldRequest): Promise<'held' | 'parked' | 'free'> {
    const { consumer, record, eventId, holdKey } = request;
    const identity = identityOf(consumer, record);
    for (;;) {
      // 1. Behind a row of its key, in one statement: the key may become free at any moment.
      if (holdKey !== null) {
        const values = [...identity, holdKey, this.groupId, ...contentOf(record, eventId)];
        const held = await this.tables.run(HOLD, values);
        if (held.length > 0) {
          await this.release({ consumer, topic: record.topic, partition: record.partition, holdKey });
          return 'held';
        }
      }
      const [found] = await this.tables.run<{ parked: boolean; behind: boolean }>(LOOK, [...identity, holdKey]);
      // 2. It is parked itself, or was discarded.
      if (found?.parked === true) return 'parked';
      // 3. A row of the key came meanwhile: again. 4. None: it may run.
      if (found?.behind !== true) return 'free';
    }
  }

  /** To be asked when a row of that key has gone, after the commit. */
  async release({ consumer, topic, partition, holdKey }: HeldKey): Promise<void> {
    if (holdKey === null) return;
    const [row] = await this.tables.run<{ released: number }>(RELEASE, [consumer, topic, partition, holdKey]);
    if ((row?.released ?? 0) > 0) this.wake();
  }

  /** Every held row that has nothing before it any more: what a crash, or a hand in the table, left behind. Reads the whole table. */
  async releaseAll(): Promise<void> {
    const [row] = await this.tables.run<{ released: number }>(RELEASE_ALL, []);
    if ((row?.released ?? 0) > 0) this.wake();
  }
}
