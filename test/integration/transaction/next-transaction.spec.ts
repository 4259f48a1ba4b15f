import { describe, expect, it } from 'vitest';
import type { OpenTransaction } from '#src/transaction/open-transaction.js';
import { NextTransaction } from '#src/transaction/next-transaction.js';
import { until } from 'nestjs-kafka-idempotency/testing';
import { rejection, useDatabase, useWorld, versions } from './database.js';
import { CLAIM, claimWithin } from './fixtures.js';

const database = useDatabase();

describe.each(versions)('a transaction begun behind the COMMIT of another, %s', (_name, orm) => {
  const world = useWorld(orm, database, { poolSize: 2 });

  const nextOf = (eventId: string, claim = CLAIM) =>
    new NextTransaction({
      owner: `consumer 'test', orders-0@${eventId}`,
      claim: { ...claim, values: ['test', eventId] },
    });
  const insert = (transaction: OpenTransaction, name: string) =>
    transaction.within(() => world.effects.insert({ name }));
  const backend = (transaction: OpenTransaction) =>
    transaction.within(() => world.dataSource.query<{ pid: number }[]>('SELECT pg_backend_pid() AS pid'));
  const deferred = `ALTER TABLE effect ADD CONSTRAINT once UNIQUE (name) DEFERRABLE INITIALLY DEFERRED`;
  const slowCommits = async (seconds: number): Promise<void> => {
    await world.other.query(
      `CREATE FUNCTION wait() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN PERFORM pg_sleep(${seconds}); RETURN NULL; END $$`,
    );
    await world.other.query(
      `CREATE CONSTRAINT TRIGGER slow AFTER INSERT ON effect DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION wait()`,
    );
  };
  const sessions = async (state: string) =>
    (
      await world.other.query<unknown[]>(
        `SELECT 1 FROM pg_stat_activity WHERE application_name = $1 AND state LIKE $2`,
        [world.schema, state],
      )
    ).length;
  const expectNothingOpen = async (): Promise<void> => {
    expect(await sessions('%transaction%')).toBe(0);
    const both = await Promise.all([world.open('x1'), world.open('x2')]); // the pool is whole
    await Promise.all(both.map((one) => one.rollback()));
  };

  it('each has its own claim and effect, on one connection that nobody else gets in between', async () => {
    const first = await world.open('e1');
    const pid = await backend(first);
    await insert(first, 'a');
    const next = nextOf('e2');
    await first.commit(next);
    const second = (await next.take())!;
    expect(second.claimed).toHaveLength(1);
    expect(await backend(second)).toEqual(pid);
    const other = await world.open('e3');
    expect(await backend(other)).not.toEqual(pid);
    await other.rollback();
    expect([await world.effectNames(), await world.claimIds()]).toEqual([['a'], ['e1']]);
    await insert(second, 'b');
    await second.commit();
    expect([await world.effectNames(), await world.claimIds()]).toEqual([
      ['a', 'b'],
      ['e1', 'e2'],
    ]);
    await expectNothingOpen();
  });

  it('its BEGIN and claim are sent before the COMMIT is answered', async () => {
    await slowCommits(0.5); // for the COMMIT to be seen at work
    const first = await world.open('e1');
    await insert(first, 'a');
    const { connection } = (await first.manager.queryRunner!.connect()) as {
      connection: { stream: { bytesWritten: number } };
    };
    const next = nextOf('e2');
    const committing = first.commit(next);
    await until(async () => (await sessions('active')) === 1, { what: 'the COMMIT to run' });
    const sent = connection.stream.bytesWritten;
    await committing;
    const second = (await next.take())!;
    expect(second.claimed).toHaveLength(1);
    expect(connection.stream.bytesWritten).toBe(sent);
    await second.rollback();
  });

  it('what is late of the first is refused, and not written by the second', async () => {
    const first = await world.open('e1');
    const { manager } = first;
    const next = nextOf('e2');
    await first.commit(next);
    const second = (await next.take())!;
    expect(await rejection(manager.query(`INSERT INTO effect (name) VALUES ('late')`))).toMatchObject({
      code: 'TRANSACTION_ENDED',
    });
    await second.commit();
    expect(await world.effectNames()).toEqual([]);
  });

  it('discarded, it leaves its claim and its connection to others', async () => {
    const first = await world.open('e1');
    const next = nextOf('e2');
    await first.commit(next);
    await next.discard();
    expect(next.take()).toBeUndefined();
    await expectNothingOpen();
    expect(await world.claimIds()).toEqual(['e1']);
  });

  it('of a COMMIT that PostgreSQL refuses nothing is left, nor of the next, and its connection is not used again', async () => {
    await world.other.query(deferred);
    const first = await world.open('e1');
    const [row] = await backend(first);
    await insert(first, 'a');
    await insert(first, 'a');
    const next = nextOf('e2');
    expect(await rejection(first.commit(next))).toMatchObject({ code: '23505' });
    expect(next.take()).toBeUndefined();
    expect([await world.effectNames(), await world.claimIds()]).toEqual([[], []]);
    await until(
      async () =>
        (await world.other.query<unknown[]>('SELECT 1 FROM pg_stat_activity WHERE pid = $1', [row!.pid])).length === 0,
      { what: 'the end of the backend' },
    );
    await expectNothingOpen();
  });

  it('of a transaction that was aborted nothing is left, nor of the next', async () => {
    const first = await world.open('e1');
    await first.within(() => rejection(world.dataSource.query('SELECT 1/0')));
    const next = nextOf('e2');
    expect(await rejection(first.commit(next))).toMatchObject({ code: 'TRANSACTION_ABORTED' });
    expect(next.take()).toBeUndefined();
    expect(await world.claimIds()).toEqual([]);
    await expectNothingOpen();
  });

  it('a claim that another live transaction holds is busy, and the COMMIT in front is not', async () => {
    const other = await world.open('e2');
    const first = await world.open('e1');
    const next = nextOf('e2', claimWithin(50));
    await first.commit(next);
    expect(first.phase).toBe('committed');
    expect(await rejection(next.take()!)).toMatchObject({ code: 'CLAIM_BUSY' });
    await other.rollback();
    await expectNothingOpen();
  });

  it('a claim made before returns no row', async () => {
    await (await world.open('e2')).commit();
    const first = await world.open('e1');
    const next = nextOf('e2');
    await first.commit(next);
    const second = (await next.take())!;
    expect(second.claimed).toEqual([]);
    await second.rollback();
    await expectNothingOpen();
  });

  it('F23 the connection is cut while COMMIT is on its way: it is unknown, and nothing is left of the next', async () => {
    await slowCommits(20);
    const first = await world.open('e1');
    await insert(first, 'a');
    const next = nextOf('e2');
    const committing = rejection(first.commit(next));
    await until(async () => (await sessions('active')) === 1, { what: 'the COMMIT to run' });
    first.destroy(new Error('killed'));
    expect(await committing).toMatchObject({ code: 'COMMIT_UNKNOWN' });
    expect(next.take()).toBeUndefined();
    await until(async () => (await sessions('active')) === 0, { what: 'the end of the backend' });
    expect([await world.effectNames(), await world.claimIds()]).toEqual([[], []]);
    await expectNothingOpen();
  });

  it('nothing is begun while somebody waits for a connection', async () => {
    const [first, other] = [await world.open('e1'), await world.open('e2')];
    const waiting = world.open('e3');
    const next = nextOf('e4');
    await first.commit(next);
    expect(next.take()).toBeUndefined();
    await (await waiting).commit();
    await other.commit();
  });

  it('a stream works in it: it is not pipelined', async () => {
    const first = await world.open('e1');
    const next = nextOf('e2');
    await first.commit(next);
    const second = (await next.take())!;
    const client = (await second.manager.queryRunner!.connect()) as { pipeline: boolean };
    expect(client.pipeline).toBe(false);
    await second.rollback();
  });
});
