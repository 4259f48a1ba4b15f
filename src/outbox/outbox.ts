import { IdempotencyError } from '../shared/errors.js';
import type { OutboxTables } from './outbox-tables.js';
import type { Relay } from './relay.js';

const STATS = `SELECT count(*) FILTER (WHERE state = 'pending')::float8 AS pending, count(*) FILTER (WHERE state = 'parked')::float8 AS parked,
  coalesce(extract(epoch FROM clock_timestamp() - min(created_at) FILTER (WHERE state = 'pending')) * 1000, 0)::float8 AS "oldestAgeMs",
  greatest(0, coalesce(extract(epoch FROM clock_timestamp() - min(due_at) FILTER (WHERE state = 'pending')) * 1000, 0))::float8 AS "lagMs"
FROM outbox_messages`;

const RETRY = `WITH again AS (UPDATE outbox_messages SET state = 'pending', attempts = 0, due_at = now() WHERE id = ANY ($1::bigint[]) AND state = 'parked' RETURNING 1)
SELECT count(*)::integer AS count FROM again`;

export interface OutboxStats {
  /** Rows that are to be sent. */
  readonly pending: number;
  /** Rows that wait for a person. */
  readonly parked: number;
  /** Of the oldest pending row. */
  readonly oldestAgeMs: number;
  /** For how long the first pending row that may be sent has been due. */
  readonly lagMs: number;
}

/** What an operator, or a test, asks of the outbox. */
export class Outbox {
  constructor(
    private readonly tables: OutboxTables,
    private readonly relay: Relay,
    private readonly log: (message: string) => void,
  ) {}

  /** Sends what is there now and gives the number of messages sent. Needs no running relay; what another relay holds is left to it. */
  runOnce(): Promise<number> {
    return this.relay.runOnce();
  }

  async stats(): Promise<OutboxStats> {
    const [row] = await this.tables.run<OutboxStats>(STATS, []);
    return row!;
  }

  /** Lets parked rows be tried again, behind later events of their keys that have been sent. Gives how many there were. `by`: for the log. */
  async retry(ids: readonly string[], { by }: { by: string }): Promise<number> {
    const wrong = ids.find((id) => !/^\d{1,18}$/.test(id));
    if (wrong !== undefined)
      throw new IdempotencyError(
        'OPTIONS_INVALID',
        `${JSON.stringify(wrong)} is no id of outbox_messages: those are whole numbers`,
      );
    const [row] = await this.tables.run<{ count: number }>(RETRY, [[...ids]]);
    const { count } = row!;
    this.log(`${count} parked rows of the outbox are tried again (by ${JSON.stringify(by)})`);
    if (count > 0) this.relay.lookAgain();
    return count;
  }
}
