import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { startEmbeddedPostgres, type EmbeddedPostgresServer } from '../../services/services.js';
import { useWorld, versions } from './database.js';

let server: EmbeddedPostgresServer;
beforeAll(async () => {
  server = await startEmbeddedPostgres({
    settings: { wal_writer_delay: '5s', wal_writer_flush_after: '1GB', synchronous_commit: 'off', fsync: 'on' },
  });
});
afterAll(() => server.close());

describe.each(versions)('the barrier, %s', (_name, orm) => {
  const world = useWorld(orm, {
    get url() {
      return server.databaseUrl;
    },
  });

  it('makes durable what was acknowledged before it began, also by others and with synchronous_commit off', async () => {
    const flushed = async (): Promise<boolean> =>
      (await world.other.query<{ ok: boolean }[]>(`SELECT pg_current_wal_flush_lsn() >= $1::pg_lsn AS ok`, [lsn]))[0]!
        .ok;
    let lsn = '';
    for (let n = 0; n < 50; n += 1) await world.other.query(`INSERT INTO effect (name) VALUES ('n' || $1::int)`, [n]);
    lsn = (await world.other.query<{ lsn: string }[]>('SELECT pg_current_wal_insert_lsn()::text AS lsn'))[0]!.lsn;
    expect(await flushed()).toBe(false);
    await world.scope.barrier();
    expect(await flushed()).toBe(true);
  });

  it('does so too when it is called in the context of an open transaction', async () => {
    const transaction = await world.open('e1');
    await world.other.query(`INSERT INTO effect (name) VALUES ('a')`);
    const [written] = await world.other.query<{ lsn: string }[]>('SELECT pg_current_wal_insert_lsn()::text AS lsn');
    await transaction.within(() => world.scope.barrier());
    const [row] = await world.other.query<{ ok: boolean }[]>('SELECT pg_current_wal_flush_lsn() >= $1::pg_lsn AS ok', [
      written!.lsn,
    ]);
    expect(row!.ok).toBe(true);
    await transaction.rollback();
  });

  it('leaves the session as it was, and is no part of the transaction it is called in', async () => {
    const transaction = await world.open('e1');
    await transaction.within(() => world.scope.barrier());
    await transaction.rollback();
    await world.scope.barrier();
    const settings = await Promise.all([1, 2, 3].map(() => world.dataSource.query('SHOW synchronous_commit')));
    expect(settings.flat()).toEqual([1, 2, 3].map(() => ({ synchronous_commit: 'off' })));
    expect(world.events).toEqual([]);
  });
});
