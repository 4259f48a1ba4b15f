import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { sqlState } from '#src/shared/sql-state.js';
import type { OpenTransaction } from '#src/transaction/open-transaction.js';
import { until } from 'nestjs-kafka-idempotency/testing';
import { rejection, useDatabase, useWorld, versions } from './database.js';
import { startPostgresProxy, type PostgresProxy } from './postgres-proxy.js';

const database = useDatabase();
let proxy: PostgresProxy;
beforeAll(async () => {
  proxy = await startPostgresProxy(database.url);
});
afterAll(() => proxy.close());

describe.each(versions)('a connection that is lost, %s', (_name, orm) => {
  const world = useWorld(orm, database, { url: () => proxy.url, poolSize: 2 });

  const backend = async (transaction: OpenTransaction): Promise<number> =>
    transaction.within(
      async () => (await world.dataSource.query<{ pid: number }[]>('SELECT pg_backend_pid() AS pid'))[0]!.pid,
    );
  const terminate = async (pid: number): Promise<void> => {
    await world.other.query('SELECT pg_terminate_backend($1)', [pid]);
    await until(
      async () =>
        (await world.other.query<unknown[]>('SELECT 1 FROM pg_stat_activity WHERE pid = $1', [pid])).length === 0,
      { what: 'the end of the backend' },
    );
  };
  /** The pool is whole: each of its connections can be had at once, and none is in a transaction. */
  const expectWholePool = async (): Promise<void> => {
    const states = await Promise.all(
      [1, 2].map(() => world.scope.run(() => world.dataSource.query<{ n: number }[]>('SELECT 1 AS n, pg_sleep(0.05)'))),
    );
    expect(states).toHaveLength(2);
    const idle = await world.other.query<unknown[]>(
      `SELECT 1 FROM pg_stat_activity WHERE application_name = $1 AND state <> 'idle'`,
      [world.schema],
    );
    expect(idle).toEqual([]);
  };

  it('B11 F23 terminated while the handler is idle: no crash, the attempt fails with 57P01, the pool is whole', async () => {
    const transaction = await world.open('e1');
    await transaction.within(() => world.effects.insert({ name: 'a' }));
    await terminate(await backend(transaction));
    await until(() => transaction.firstError !== undefined, { what: 'the error of the connection' });
    const error = await transaction.within(() => rejection(world.effects.insert({ name: 'b' })));
    expect(error).toMatchObject({ code: 'TRANSACTION_ABORTED', retryable: true, cause: { code: '57P01' } });
    const failure = await rejection(transaction.commit());
    expect(failure).toMatchObject({ code: 'TRANSACTION_ABORTED', cause: { code: '57P01' } });
    expect(sqlState(failure)).toBe('57P01');
    expect(sqlState(transaction.firstError)).toBe('57P01');
    expect([await world.effectNames(), await world.claimIds()]).toEqual([[], []]);
    await expectWholePool();
  });

  it('B11 F23 terminated during a statement: its error is 57P01, and rollback() does not hide it', async () => {
    const transaction = await world.open('e1');
    const pid = await backend(transaction);
    const work = transaction.within(() => rejection(world.dataSource.query('SELECT pg_sleep(30)')));
    await new Promise((resolve) => setTimeout(resolve, 50));
    await terminate(pid);
    expect(await work).toMatchObject({ code: '57P01' });
    await transaction.rollback();
    expect(transaction.phase).toBe('rolled back');
    expect(sqlState(transaction.firstError)).toBe('57P01');
    await expectWholePool();
  });

  it('F23 terminated again and again, run() always rejects or has written', async () => {
    let written = 0;
    for (let n = 0; n < 10; n += 1) {
      const work = world.scope.run(async (manager) => {
        await manager.insert('effect', { name: `n${n}` });
        const [row] = await manager.query<{ pid: number }[]>('SELECT pg_backend_pid() AS pid');
        if (n % 2 === 0) await world.other.query('SELECT pg_terminate_backend($1)', [row!.pid]);
        if (n % 4 === 0) await new Promise((resolve) => setTimeout(resolve, 20));
      });
      written += await work.then(
        () => 1,
        () => 0,
      );
    }
    expect(await world.effectNames()).toHaveLength(written);
    expect(written).toBe(5);
    await expectWholePool();
  });

  it.each([
    ['lost', 0],
    ['answer lost', 1],
  ] as const)(
    'F05 COMMIT %s: the outcome is unknown, and the claim of the next attempt decides',
    async (fault, done) => {
      const transaction = await world.open('e1');
      await transaction.within(() => world.effects.insert({ name: 'a' }));
      proxy.arm(fault);
      const error = await rejection(transaction.commit());
      expect(error).toMatchObject({ code: 'COMMIT_UNKNOWN', retryable: true });
      expect(error.message).toContain("consumer 'test', orders-0@e1");
      expect(transaction.phase).toBe('unknown');

      const next = await world.open('e1');
      expect(next.claimed).toHaveLength(1 - done);
      if (next.claimed.length > 0) await next.within(() => world.effects.insert({ name: 'a' }));
      await next.commit();
      expect([await world.effectNames(), await world.claimIds()]).toEqual([['a'], ['e1']]);
      await expectWholePool();
    },
  );

  it('F05 run() tells an unknown outcome from a failure', async () => {
    proxy.arm('answer lost');
    expect(await rejection(world.scope.run(() => world.effects.insert({ name: 'a' })))).toMatchObject({
      code: 'COMMIT_UNKNOWN',
    });
    expect(await world.effectNames()).toEqual(['a']);
  });

  it('F23 57P01 during COMMIT is an unknown outcome', async () => {
    await world.other.query(`CREATE TABLE slow (id int)`);
    await world.other.query(
      `CREATE FUNCTION wait() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN PERFORM pg_sleep(30); RETURN NULL; END $$`,
    );
    await world.other.query(
      `CREATE CONSTRAINT TRIGGER slow AFTER INSERT ON slow DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION wait()`,
    );
    const transaction = await world.open('e1');
    const pid = await backend(transaction);
    await transaction.within(() => world.dataSource.query('INSERT INTO slow VALUES (1)'));
    const commit = rejection(transaction.commit());
    await until(
      async () =>
        (
          await world.other.query<unknown[]>(
            `SELECT 1 FROM pg_stat_activity WHERE pid = $1 AND query = 'COMMIT' AND state = 'active'`,
            [pid],
          )
        ).length > 0,
      { what: 'COMMIT to run' },
    );
    await terminate(pid);
    expect(await commit).toMatchObject({ code: 'COMMIT_UNKNOWN', cause: { code: '57P01' } });
    await expectWholePool();
  });

  it('a COMMIT that is cancelled is a definite failure', async () => {
    await world.other.query(`CREATE TABLE slow (id int)`);
    await world.other.query(
      `CREATE FUNCTION wait() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN PERFORM pg_sleep(30); RETURN NULL; END $$`,
    );
    await world.other.query(
      `CREATE CONSTRAINT TRIGGER slow AFTER INSERT ON slow DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION wait()`,
    );
    const transaction = await world.open('e1');
    const pid = await backend(transaction);
    await transaction.within(() => world.dataSource.query('INSERT INTO slow VALUES (1)'));
    const commit = rejection(transaction.commit());
    await until(
      async () =>
        (
          await world.other.query<unknown[]>(
            `SELECT 1 FROM pg_stat_activity WHERE pid = $1 AND query = 'COMMIT' AND state = 'active'`,
            [pid],
          )
        ).length > 0,
      { what: 'COMMIT to run' },
    );
    await world.other.query('SELECT pg_cancel_backend($1)', [pid]);
    expect(await commit).toMatchObject({ code: '57014' });
    expect(transaction.phase).toBe('rolled back');
    await expectWholePool();
  });

  it('destroy() ends a statement at once, refuses what follows, and gives the pool a new connection', async () => {
    const transaction = await world.open('e1');
    const work = transaction.within(() => rejection(world.dataSource.query('SELECT pg_sleep(30)')));
    await new Promise((resolve) => setTimeout(resolve, 50));
    const reason = new Error('the handler took too long');
    transaction.destroy(reason);
    expect(transaction.phase).toBe('destroyed');
    expect(await work).toMatchObject({ driverError: { code: 'TRANSACTION_ENDED', cause: reason } });
    expect(await transaction.within(() => rejection(world.effects.insert({ name: 'b' })))).toMatchObject({
      code: 'TRANSACTION_ENDED',
      cause: reason,
    });
    expect(await rejection(transaction.commit())).toMatchObject({ code: 'TRANSACTION_ENDED', cause: reason });
    await transaction.rollback();
    expect(transaction.phase).toBe('destroyed');
    await until(
      async () =>
        (
          await world.other.query<unknown[]>(
            `SELECT 1 FROM pg_stat_activity WHERE query LIKE '%pg_sleep(30)%' AND pid <> pg_backend_pid() AND application_name = $1`,
            [world.schema],
          )
        ).length === 0,
      { what: 'the end of the statement on the server' },
    );
    await expectWholePool();
    expect(await world.claimIds()).toEqual([]);
  });

  it('destroy() while the handler is idle rolls back', async () => {
    const transaction = await world.open('e1');
    await transaction.within(() => world.effects.insert({ name: 'a' }));
    transaction.destroy(new Error('lost the partition'));
    const next = await world.open('e1');
    expect(next.claimed).toHaveLength(1);
    await next.rollback();
    await expectWholePool();
  });

  it('destroy() while COMMIT is on its way makes the outcome unknown', async () => {
    const transaction = await world.open('e1');
    await transaction.within(() => world.effects.insert({ name: 'a' }));
    proxy.arm('answer lost', { hold: true });
    const commit = rejection(transaction.commit());
    await proxy.struck;
    const reason = new Error('the deadline of the shutdown');
    transaction.destroy(reason);
    expect(await commit).toMatchObject({ code: 'COMMIT_UNKNOWN', cause: reason });
    expect(transaction.phase).toBe('unknown');
    expect(await world.effectNames()).toEqual(['a']);
    await expectWholePool();
  });

  it('destroy() in the turn before COMMIT keeps it from being sent', async () => {
    const transaction = await world.open('e1');
    const commit = rejection(transaction.commit());
    transaction.destroy(new Error('too late'));
    expect(await commit).toMatchObject({ code: 'TRANSACTION_ENDED' });
    expect(await world.claimIds()).toEqual([]);
    await expectWholePool();
  });

  it('rollback() does not wait for ever for a statement that runs on', async () => {
    const transaction = await world.open('e1');
    const left = transaction.within(() => rejection(world.dataSource.query('SELECT pg_sleep(60)')));
    await new Promise((resolve) => setTimeout(resolve, 20));
    await transaction.rollback();
    expect(transaction.phase).toBe('rolled back');
    await left;
    await expectWholePool();
  });

  it('a query runner released by hand is a lost connection, not one in a transaction that the pool lends to others', async () => {
    const transaction = await world.open('e1');
    await transaction.within(() => world.effects.insert({ name: 'a' }));
    await transaction.manager.queryRunner!.release();
    expect(await transaction.within(() => rejection(world.effects.insert({ name: 'b' })))).toMatchObject({
      code: 'TRANSACTION_ABORTED',
    });
    const next = await world.open('e2');
    await next.within(() => world.effects.insert({ name: 'c' }));
    expect(await rejection(transaction.commit())).toMatchObject({ code: 'TRANSACTION_ABORTED' });
    await next.commit();
    expect([await world.effectNames(), await world.claimIds()]).toEqual([['c'], ['e2']]);
    await expectWholePool();
  });

  it('a query runner released by hand after the end does not touch the connection, which others use by then', async () => {
    const transaction = await world.open('e1');
    const pid = await backend(transaction);
    await transaction.commit();
    const next = await world.open('e2');
    expect(await backend(next)).toBe(pid);
    await transaction.manager.queryRunner!.release();
    await next.within(() => world.effects.insert({ name: 'a' }));
    await next.commit();
    expect(await world.effectNames()).toEqual(['a']);
  });

  it('a DataSource destroyed under an open transaction loses it, and does not hang', async () => {
    const transaction = await world.open('e1');
    await world.dataSource.destroy();
    expect(await transaction.within(() => rejection(world.effects.insert({ name: 'b' })))).toMatchObject({
      code: 'TRANSACTION_ABORTED',
    });
    expect(await rejection(transaction.commit())).toMatchObject({ code: 'TRANSACTION_ABORTED' });
    await world.dataSource.initialize();
    expect(await world.claimIds()).toEqual([]);
  });

  it('a connection released on the client by hand is refused', async () => {
    const transaction = await world.open('e1');
    const client = (await transaction.manager.queryRunner!.connect()) as { release(): void; end(): void };
    expect(() => client.release()).toThrow(/HAND_MADE_COMMIT/);
    expect(() => client.end()).toThrow(/HAND_MADE_COMMIT/);
    await transaction.commit();
    expect(await world.claimIds()).toEqual(['e1']);
  });
});

describe.each(versions)('a connection in pipeline mode that is lost, %s', (_name, orm) => {
  const world = useWorld(orm, database, { url: () => proxy.url, extra: { pipeline: true } });

  it('destroy() while COMMIT is on its way does not wait for its answer', async () => {
    const transaction = await world.open('e1');
    proxy.arm('answer lost', { hold: true });
    const commit = rejection(transaction.commit());
    await proxy.struck;
    transaction.destroy(new Error('the deadline of the shutdown'));
    expect(await commit).toMatchObject({ code: 'COMMIT_UNKNOWN' });
    expect(await world.claimIds()).toEqual(['e1']);
  });
});
