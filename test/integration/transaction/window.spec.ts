import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { until } from 'nestjs-kafka-idempotency/testing';
import { startEmbeddedPostgres, type EmbeddedPostgresServer } from '../../services/services.js';
import { rejection, useWorld, versions } from './database.js';

// The tests crash it, and nothing brings an asynchronous commit to its disk but a commit that waits.
let server: EmbeddedPostgresServer;
beforeAll(async () => {
  server = await startEmbeddedPostgres({
    settings: { wal_writer_delay: '10s', wal_writer_flush_after: '1GB', autovacuum: 'off' },
  });
});
afterAll(() => server.close());

describe.each(versions)('durability, %s', (_name, orm) => {
  const database = {
    get url() {
      return server.databaseUrl;
    },
  };
  const world = useWorld(orm, database);

  const isFlushed = async (lsn: string): Promise<boolean> =>
    (await world.other.query<{ ok: boolean }[]>('SELECT pg_current_wal_flush_lsn() >= $1::pg_lsn AS ok', [lsn]))[0]!.ok;
  const writtenTo = async (): Promise<string> =>
    (await world.other.query<{ lsn: string }[]>('SELECT pg_current_wal_insert_lsn()::text AS lsn'))[0]!.lsn;
  const handle = async (eventId: string, durability?: 'commit' | 'window'): Promise<void> => {
    const transaction = await world.open(eventId, { durability });
    await transaction.within(() => world.effects.save({ name: eventId }));
    await transaction.commit();
  };
  const untilBack = () =>
    until(() => world.other.query('SELECT 1').catch(() => undefined), { what: 'the database', timeoutMs: 20_000 });
  const restarts = async (): Promise<string[]> => {
    const told: string[] = [];
    await world.scope.watchServer({ restarted: () => told.push('restarted'), unreplicated: () => {} });
    return told;
  };

  it("a transaction of 'window' is acknowledged before it is on disk, and leaves its session as it was", async () => {
    await handle('e1', 'window');
    expect(await isFlushed(await writtenTo())).toBe(false);
    await handle('e2');
    expect(await isFlushed(await writtenTo())).toBe(true);
    const settings = await Promise.all([1, 2, 3].map(() => world.dataSource.query('SHOW synchronous_commit')));
    expect(settings.flat()).toEqual([1, 2, 3].map(() => ({ synchronous_commit: 'on' })));
    expect(await world.claimIds()).toEqual(['e1', 'e2']);
  });

  it('an error in front of the claim takes the claim with it', async () => {
    const error = await rejection(world.open('e1', { durability: 'window', isolation: 'NO SUCH LEVEL' as never }));
    expect(error.code).toBe('42601');
    expect(await world.claimIds()).toEqual([]);
  });

  it('F22 a crash is noticed before the first transaction on a new connection, once, and not by those on the old one', async () => {
    const told = await restarts();
    await handle('e1', 'window');
    expect(told).toEqual([]);
    await server.restart('immediate');
    await untilBack();
    expect(await world.claimIds()).toEqual([]);
    const seen: number[] = [];
    const transaction = await world.open('e1', { onBegin: () => seen.push(told.length) });
    expect(seen).toEqual([0]);
    expect(told).toEqual(['restarted']);
    await transaction.rollback();
    await Promise.all(['e2', 'e3', 'e4'].map((id) => handle(id)));
    await world.scope.barrier();
    expect(told).toEqual(['restarted']);
  });

  it('F22 a barrier that finds the server in another run rejects, for it covers nothing from before; the next one is good', async () => {
    const told = await restarts();
    await handle('e1', 'window');
    await server.restart('immediate');
    await untilBack();
    expect(await rejection(world.scope.barrier())).toMatchObject({ code: 'DATABASE_UNAVAILABLE', retryable: true });
    expect(told).toEqual(['restarted']);
    await world.scope.barrier();
    expect(told).toEqual(['restarted']);
  });

  it('F22 a single backend that crashes makes the server forget as well, and that is noticed too', async () => {
    const told = await restarts();
    await handle('e1', 'window');
    const [row] = await world.other.query<{ pid: number; since: string }[]>(
      'SELECT pg_backend_pid() AS pid, pg_postmaster_start_time()::text AS since',
    );
    process.kill(row!.pid, 'SIGKILL');
    await until(
      () =>
        world.other.query('SELECT 1').then(
          () => false,
          () => true,
        ),
      { what: 'the crash', intervalMs: 1 },
    );
    await untilBack();
    const [after] = await world.other.query<{ since: string }[]>('SELECT pg_postmaster_start_time()::text AS since');
    expect(after!.since).toBe(row!.since);
    expect(await world.claimIds()).toEqual([]);
    await rejection(world.scope.barrier());
    expect(told).toEqual(['restarted']);
  });
});
