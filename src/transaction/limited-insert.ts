/** An insert of one row that waits no longer than that for another transaction with the same key. */
export interface LimitedInsert {
  readonly text: string;
  readonly lockTimeoutMs: number;
}

/**
 * `INSERT … ON CONFLICT DO NOTHING RETURNING` of one row under a `lock_timeout` of its own, in one statement: two statements more around it cost
 * PostgreSQL a fifth of the transaction. The row comes out of a CTE that sets the limit, so that it is set before the row can wait; RETURNING puts back what
 * the session had, whoever set it. If no row comes back there is nothing more to do in the transaction, and its end puts it back.
 *
 * `into`: table and columns. `row`: their expressions, parameters from `$1`. Only for one row: behind the first row returned the limit is gone.
 */
export function limitedInsert(insert: { into: string; row: string; lockTimeoutMs: number }): LimitedInsert {
  const lockTimeoutMs = Math.max(1, Math.round(insert.lockTimeoutMs));
  const text =
    `WITH session AS MATERIALIZED (SELECT current_setting('lock_timeout') AS lock_timeout), ` +
    `limited AS MATERIALIZED (SELECT set_config('lock_timeout', '${lockTimeoutMs}', true) AS lock_timeout FROM session) ` +
    `INSERT INTO ${insert.into} SELECT ${insert.row} FROM limited WHERE lock_timeout IS NOT NULL ` +
    `ON CONFLICT DO NOTHING RETURNING set_config('lock_timeout', (SELECT lock_timeout FROM session), true)`;
  return { text, lockTimeoutMs };
}

/**
 * The same of many rows, in the order of their source, so that two transactions with some of the same keys wait for each other instead of deadlocking. The
 * limit is taken back by an aggregate over what the INSERT returned, and so behind its last row. One row comes back, whose `inserted` is `true` if all rows were,
 * and else an array of what `told` says of each that was: a subquery of its own, that runs only then.
 *
 * `source`: a SELECT in the order wanted, with a sort that is done before the first row: the limit has to be set by then. `count`: how many rows it has.
 * `returning`: the columns that `told` needs.
 */
export function limitedInserts(insert: {
  into: string;
  source: (limited: string) => string;
  count: string;
  returning: string;
  told: string;
  lockTimeoutMs: number;
}): LimitedInsert {
  const lockTimeoutMs = Math.max(1, Math.round(insert.lockTimeoutMs));
  const text =
    `WITH session AS MATERIALIZED (SELECT current_setting('lock_timeout') AS lock_timeout), ` +
    `limited AS MATERIALIZED (SELECT set_config('lock_timeout', '${lockTimeoutMs}', true) AS lock_timeout FROM session), ` +
    `inserted AS (INSERT INTO ${insert.into} ${insert.source('(SELECT lock_timeout FROM limited) IS NOT NULL')} ON CONFLICT DO NOTHING RETURNING ${insert.returning}) ` +
    `SELECT CASE WHEN count(*) = ${insert.count} THEN 'true' ELSE (SELECT coalesce(json_agg(${insert.told}), '[]') FROM inserted) END AS inserted, set_config('lock_timeout', (SELECT lock_timeout FROM session), true) FROM inserted`;
  return { text, lockTimeoutMs };
}
