import type { DataSource } from 'typeorm';
import { until } from 'nestjs-kafka-idempotency/testing';

/** From now on each commit on the server waits for a standby of a name that none has. */
export function waitForStandby(db: DataSource): Promise<void> {
  return change(db, `SET synchronous_standby_names = 'nobody'`, 'nobody');
}

/** Whoever waits is let go, as by a standby that has come. */
export function waitNoMore(db: DataSource): Promise<void> {
  return change(db, 'RESET synchronous_standby_names', '');
}

/** Cancels the wait of a session whose statement begins so, once there is one. */
export async function cancelWait(db: DataSource, query: string): Promise<void> {
  const cancel = () =>
    db.query<unknown[]>(
      `SELECT pg_cancel_backend(pid) FROM pg_stat_activity WHERE wait_event = 'SyncRep' AND query LIKE $1 || '%'`,
      [query],
    );
  await until(async () => (await cancel()).length > 0, { what: `${query} to wait for the standby`, intervalMs: 10 });
}

async function change(db: DataSource, setting: string, expected: string): Promise<void> {
  await db.query(`ALTER SYSTEM ${setting}`);
  await db.query('SELECT pg_reload_conf()');
  const shown = () => db.query<{ names: string }[]>(`SELECT current_setting('synchronous_standby_names') AS names`);
  await until(async () => (await shown())[0]!.names === expected, { what: `synchronous_standby_names '${expected}'` });
}
