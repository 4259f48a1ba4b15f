import { describe, expect, it } from 'vitest';
import { until } from 'nestjs-kafka-idempotency/testing';
import { rejection, useDatabase, useWorld, versions, type Orm } from './database.js';
import { claimWithin } from './fixtures.js';

const database = useDatabase();

const seen: string[] = [];
function onEverything(orm: Orm) {
  @orm.EventSubscriber()
  class OnEverything {
    beforeInsert(event: { metadata: { tableName: string } }) {
      seen.push(event.metadata.tableName);
    }
  }
  return [OnEverything];
}

describe.each(versions)('the claim, %s', (_name, orm) => {
  const world = useWorld(orm, database, { subscribers: (o) => onEverything(o) as never[], poolSize: 2 });
  const waiting = `SELECT 1 FROM pg_stat_activity WHERE application_name = $1 AND wait_event_type = 'Lock'`;
  const untilOneWaits = () =>
    until(async () => (await world.other.query<unknown[]>(waiting, [world.schema])).length > 0, {
      what: 'a claim to wait for the one in front',
    });
  const lockTimeout = async (): Promise<unknown> =>
    (await world.dataSource.query<{ lock_timeout: string }[]>('SHOW lock_timeout'))[0]?.lock_timeout;

  it('B17 a claim made before returns no row, and no entity subscriber hears of claims', async () => {
    seen.length = 0;
    const first = await world.open('e1');
    await first.within(() => world.effects.save({ name: 'a' }));
    await first.commit();
    const second = await world.open('e1');
    expect(second.claimed).toEqual([]);
    await second.commit();
    expect(seen).toEqual(['effect']);
  });

  it('several claims in one statement come back as rows', async () => {
    const text = `INSERT INTO claims (consumer, event_id) SELECT $1, unnest($2::text[]) ON CONFLICT DO NOTHING RETURNING event_id`;
    await (await world.open('b')).commit();
    const transaction = await world.open('', {
      claim: { text, values: ['test', ['a', 'b', 'c']], lockTimeoutMs: 1000 },
    });
    expect(transaction.claimed).toEqual([{ event_id: 'a' }, { event_id: 'c' }]);
    await transaction.commit();
  });

  it('F27 a claim that another live transaction holds is busy, and the connection stays in use', async () => {
    const first = await world.open('e1');
    const claim = { ...claimWithin(50), values: ['test', 'e1'] };
    const pids = new Set<unknown>();
    for (let n = 0; n < 3; n += 1) {
      const error = await rejection(world.open('e1', { claim }));
      expect(error).toMatchObject({ code: 'CLAIM_BUSY', retryable: true, cause: { code: '55P03' } });
      expect(error.message).toContain('50 ms');
      pids.add((await world.dataSource.query<{ pid: number }[]>('SELECT pg_backend_pid() AS pid'))[0]!.pid);
    }
    expect(pids.size).toBe(1);
    await first.rollback();
    expect((await world.open('e1', { claim })).claimed).toHaveLength(1);
  });

  it('F27 the one that waits claims when the other rolls back, and skips when it commits', async () => {
    for (const [id, end, rows] of [
      ['e1', 'rollback', 1],
      ['e2', 'commit', 0],
    ] as const) {
      const first = await world.open(id);
      const second = world.open(id);
      await untilOneWaits();
      await first[end]();
      const transaction = await second;
      expect(transaction.claimed).toHaveLength(rows);
      await transaction.commit();
    }
  });

  it('F27 a lock that the handler waits for is not "in progress elsewhere"', async () => {
    await world.other.query(`INSERT INTO effect VALUES (1, 'x')`);
    const holder = world.other.createQueryRunner();
    await holder.startTransaction();
    await holder.query('SELECT * FROM effect FOR UPDATE');
    const transaction = await world.open('e1');
    const error = await transaction.within(() =>
      rejection(world.dataSource.query('SELECT * FROM effect FOR UPDATE NOWAIT')),
    );
    expect(error).toMatchObject({ code: '55P03' });
    await transaction.rollback();
    await holder.rollbackTransaction();
    await holder.release();
  });

  it('the wait of the claim is bounded, the waits of the handler are as before', async () => {
    const transaction = await world.open('e1');
    expect(await transaction.within(lockTimeout)).toBe('0');
    await transaction.commit();
    expect(await lockTimeout()).toBe('0');
  });

  it('a BEGIN that fails leaves no claim behind, and no broken connection', async () => {
    for (let n = 0; n < 5; n += 1) {
      expect(await rejection(world.open(`e${n}`, { isolation: 'NONSENSE' as never }))).toMatchObject({ code: '42601' });
    }
    expect(await world.claimIds()).toEqual([]);
    expect(await world.effects.count()).toBe(0);
  });

  it('a claim that cannot be made at all is the error of the driver, each time', async () => {
    const claim = { text: 'INSERT INTO nowhere VALUES ($1) RETURNING 1', values: ['x'], lockTimeoutMs: 100 };
    for (let n = 0; n < 3; n += 1)
      expect(await rejection(world.open('e1', { claim }))).toMatchObject({ code: '42P01' });
    expect(await world.effects.count()).toBe(0);
  });

  it('B18 REPEATABLE READ: losing the race for a claim is 40001, and a rerun finds it made', async () => {
    const first = await world.open('e1', { isolation: 'REPEATABLE READ' });
    const second = rejection(world.open('e1', { isolation: 'REPEATABLE READ' }));
    await untilOneWaits();
    await first.commit();
    expect(await second).toMatchObject({ code: '40001' });
    const third = await world.open('e1', { isolation: 'REPEATABLE READ' });
    expect(third.claimed).toEqual([]);
    await third.commit();
  });

  it('B10 a pool that gives no connection is an outage, not a failure of the handler', async () => {
    await world.dataSource.destroy();
    expect(await rejection(world.open('e1'))).toMatchObject({ code: 'DATABASE_UNAVAILABLE', retryable: true });
  });
});

describe.each(versions)('the claim on a session with a lock_timeout of its own, %s', (_name, orm) => {
  const onConnect = (client: { query(text: string): Promise<unknown> }) => client.query(`SET lock_timeout = '4321ms'`);
  const world = useWorld(orm, database, { extra: { onConnect } });

  it("the handler has the session's lock_timeout again", async () => {
    const transaction = await world.open('e1');
    expect(await transaction.within(() => world.dataSource.query('SHOW lock_timeout'))).toEqual([
      { lock_timeout: '4321ms' },
    ]);
    await transaction.commit();
  });
});

describe.each(versions)('prepared statements, %s', (_name, orm) => {
  const world = useWorld(orm, database, { poolSize: 2 });
  const prepared = async (): Promise<{ name: string; statement: string }[]> =>
    world.dataSource.query(`SELECT name, statement FROM pg_prepared_statements WHERE name LIKE 'nki%'`);

  it('are named from their text, once per connection', async () => {
    const found = await world.scope.run(async () => {
      for (let n = 0; n < 3; n += 1) await world.dataSource.query('SELECT $1::int AS n', [n]);
      return prepared();
    });
    expect(found.map((each) => each.statement)).toEqual(['SELECT $1::int AS n']);
  });

  it('stop at 200 on a connection, and statements beyond work without a name', async () => {
    const found = await world.scope.run(async () => {
      for (let n = 0; n < 210; n += 1)
        expect(await world.dataSource.query(`SELECT $1::int AS n${n}`, [n])).toEqual([{ [`n${n}`]: n }]);
      return prepared();
    });
    expect(found).toHaveLength(200);
  });

  it('a plan that a change of the table made stale fails one attempt, on whichever connection, and the next one works', async () => {
    const read = () => world.scope.run(() => world.dataSource.query('SELECT * FROM effect WHERE id > $1', [0]));
    await Promise.all([read(), read(), read(), read()]);
    await world.other.query(`ALTER TABLE effect ADD COLUMN more int`);
    expect(await rejection(read())).toMatchObject({ code: '0A000' });
    for (let n = 0; n < 4; n += 1) await read();
    await Promise.all([read(), read(), read()]);
  });

  it('a plan whose name the server forgot fails one attempt, and the next one works', async () => {
    const read = () => world.scope.run(() => world.dataSource.query('SELECT * FROM effect WHERE id > $1', [0]));
    await Promise.all([read(), read()]);
    await Promise.all([world.dataSource.query('DEALLOCATE ALL'), world.dataSource.query('DEALLOCATE ALL')]);
    expect(await rejection(read())).toMatchObject({ code: '26000' });
    for (let n = 0; n < 4; n += 1) await read();
  });

  it('a stale plan that the user named heals with a new connection', async () => {
    const read = () =>
      world.scope.run(async (manager) => {
        const client = (await manager.queryRunner!.connect()) as { query(config: object): Promise<unknown> };
        return client.query({ name: 'mine', text: 'SELECT * FROM effect WHERE id > $1', values: [0] });
      });
    await read();
    await world.other.query(`ALTER TABLE effect ADD COLUMN more int`);
    expect(await rejection(read())).toMatchObject({ code: '0A000' });
    await read();
  });

  it('a stale plan of the claim heals in the same way', async () => {
    const claim = {
      text: 'INSERT INTO claims SELECT $1, $2 ON CONFLICT DO NOTHING RETURNING *',
      values: ['test', 'x'],
      lockTimeoutMs: 1000,
    };
    const attempt = async (id: string) =>
      (await world.open(id, { claim: { ...claim, values: ['test', id] } })).commit();
    await Promise.all([attempt('a'), attempt('b')]);
    await world.other.query(`ALTER TABLE claims ADD COLUMN more int`);
    expect(await rejection(attempt('c'))).toMatchObject({ code: '0A000' });
    await attempt('c');
    await attempt('d');
    expect(await world.claimIds()).toEqual(['a', 'b', 'c', 'd']);
  });
});

describe.each(versions)('preparedStatements: false, %s', (_name, orm) => {
  const world = useWorld(orm, database, { preparedStatements: false });

  it('names nothing', async () => {
    const transaction = await world.open('e1');
    const found = await transaction.within(async () => {
      await world.dataSource.query('SELECT $1::int AS n', [1]);
      return world.dataSource.query('SELECT name FROM pg_prepared_statements');
    });
    await transaction.commit();
    expect(found).toEqual([]);
  });
});

describe.each(versions)('a pool with pipeline mode on, %s', (_name, orm) => {
  const world = useWorld(orm, database, { extra: { pipeline: true } });

  it('claims, works and commits, and a BEGIN that fails takes the claim with it', async () => {
    const transaction = await world.open('e1');
    await transaction.within(() =>
      Promise.all([world.effects.insert({ name: 'a' }), world.effects.insert({ name: 'b' })]),
    );
    await transaction.commit();
    expect(await rejection(world.open('e2', { isolation: 'NONSENSE' as never }))).toMatchObject({ code: '42601' });
    expect([await world.effectNames(), await world.claimIds()]).toEqual([['a', 'b'], ['e1']]);
  });
});
