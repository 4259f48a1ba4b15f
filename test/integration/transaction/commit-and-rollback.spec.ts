import type { EntityManager } from 'typeorm';
import { beforeEach, describe, expect, it } from 'vitest';
import { rejection, useDatabase, useWorld, versions, type Orm } from './database.js';

const database = useDatabase();

const calls: string[] = [];
let failAt = '';
function recorder(orm: Orm) {
  const note = async (what: string): Promise<void> => {
    calls.push(what);
    if (what === failAt) throw new Error(`subscriber at ${what}`);
  };
  @orm.EventSubscriber()
  class Recorder {
    beforeTransactionStart() {
      return note('beforeTransactionStart');
    }
    afterTransactionStart() {
      return note('afterTransactionStart');
    }
    beforeTransactionCommit() {
      return note('beforeTransactionCommit');
    }
    afterTransactionCommit() {
      return note('afterTransactionCommit');
    }
    beforeTransactionRollback() {
      return note('beforeTransactionRollback');
    }
    afterTransactionRollback() {
      return note('afterTransactionRollback');
    }
  }
  return [Recorder];
}

describe.each(versions)('the end of a transaction, %s', (_name, orm) => {
  const world = useWorld(orm, database, { poolSize: 1 });

  it('B44 the claim and the effect are committed together', async () => {
    const transaction = await world.open('e1');
    expect(transaction.claimed).toHaveLength(1);
    await transaction.within(() => world.effects.insert({ name: 'a' }));
    expect([await world.effectNames(), await world.claimIds()]).toEqual([[], []]);

    await transaction.commit();

    expect(transaction.phase).toBe('committed');
    expect([await world.effectNames(), await world.claimIds()]).toEqual([['a'], ['e1']]);
  });

  it('B44 the claim goes with the effect when the work fails', async () => {
    const transaction = await world.open('e1');
    await transaction.within(() => world.effects.save({ name: 'a' }));
    await transaction.rollback();
    expect(transaction.phase).toBe('rolled back');
    expect([await world.effectNames(), await world.claimIds()]).toEqual([[], []]);
  });

  it('run() gives the result of its work, or its very error', async () => {
    expect(await world.scope.run(async () => (await world.effects.save({ name: 'a' })).name)).toBe('a');
    const error = new Error('mine');
    const failing = world.scope.run(async () => {
      await world.effects.save({ name: 'b' });
      throw error;
    });
    expect(await rejection(failing)).toBe(error);
    expect(await world.effectNames()).toEqual(['a']);
  });

  it('run() and open() take the isolation level that was asked for', async () => {
    const level = async (): Promise<unknown> =>
      (await world.dataSource.query<{ l: string }[]>(`SELECT current_setting('transaction_isolation') AS l`))[0]?.l;
    expect(await world.scope.run(level, { isolation: 'SERIALIZABLE' })).toBe('serializable');
    expect(await world.scope.run(level)).toBe('read committed');
    const transaction = await world.open('e1', { isolation: 'REPEATABLE READ' });
    expect(await transaction.within(level)).toBe('repeatable read');
    await transaction.rollback();
  });

  it('B19 an error that the work caught aborts the transaction, and the first one is the cause', async () => {
    await world.other.query(`INSERT INTO effect VALUES (1, 'there')`);
    const transaction = await world.open('e1');
    await transaction.within(async () => {
      await world.dataSource.query(`INSERT INTO effect VALUES (1, 'twice')`).catch(() => undefined);
      await world.effects.insert({ name: 'after' }).catch(() => undefined);
    });
    const error = await rejection(transaction.commit());
    expect(error).toMatchObject({ code: 'TRANSACTION_ABORTED', cause: { code: '23505' } });
    expect(error.message).toContain('23505');
    expect(error.message).toContain("consumer 'test', orders-0@e1");
    expect(transaction.phase).toBe('rolled back');
    expect([await world.effectNames(), await world.claimIds()]).toEqual([['there'], []]);
  });

  it('B19 run() tells the first error too, not the one that followed from it', async () => {
    const work = async (): Promise<void> => {
      await world.dataSource.query('SELECT 1/0').catch(() => undefined);
      await world.effects.insert({ name: 'after' });
    };
    const error = await rejection(world.scope.run(work));
    expect(error).toMatchObject({ code: 'TRANSACTION_ABORTED', cause: { code: '22012' } });
  });

  it('B19 an aborted transaction is seen at each of 50 commits that follow the error at once', async () => {
    for (let n = 0; n < 50; n += 1) {
      const transaction = await world.open(`e${n}`);
      await transaction.within(() => world.dataSource.query('SELECT 1/0').catch(() => undefined));
      expect(await rejection(transaction.commit())).toMatchObject({
        code: 'TRANSACTION_ABORTED',
        cause: { code: '22012' },
      });
    }
    expect(await world.claimIds()).toEqual([]);
  });

  it('a deferred constraint that COMMIT finds violated is the error of the driver', async () => {
    await world.other.query(`CREATE TABLE child (parent int REFERENCES effect (id) DEFERRABLE INITIALLY DEFERRED)`);
    const transaction = await world.open('e1');
    await transaction.within(() => world.dataSource.query('INSERT INTO child VALUES (99)'));
    expect(await rejection(transaction.commit())).toMatchObject({ code: '23503' });
    expect(transaction.phase).toBe('rolled back');
    expect(await world.claimIds()).toEqual([]);
    expect(await world.effects.count()).toBe(0);
  });

  it('B18 a serialization failure at COMMIT is the error of the driver', async () => {
    await world.effects.insert([
      { id: 1, name: 'x' },
      { id: 2, name: 'y' },
    ]);
    const transaction = await world.open('e1', { isolation: 'SERIALIZABLE' });
    await transaction.within(async () => {
      await world.effects.findBy({ id: 1 });
      await world.effects.update({ id: 2 }, { name: 'y2' });
    });
    await world.other.transaction('SERIALIZABLE', async (manager) => {
      await manager.query('SELECT * FROM effect WHERE id = 2');
      await manager.query(`UPDATE effect SET name = 'x2' WHERE id = 1`);
    });
    expect(await rejection(transaction.commit())).toMatchObject({ code: '40001' });
    expect(await world.claimIds()).toEqual([]);
  });

  it('B18 F28 a deadlock is the error of the driver for one, and the other goes on', async () => {
    await world.effects.insert([
      { id: 1, name: 'x' },
      { id: 2, name: 'y' },
    ]);
    const update = (manager: EntityManager, id: number) =>
      manager.query(`UPDATE effect SET name = name || '!' WHERE id = $1`, [id]);
    const transaction = await world.open('e1');
    const outcomes = await Promise.allSettled([
      transaction.within(async () => {
        await update(transaction.manager, 1);
        await new Promise((resolve) => setTimeout(resolve, 100));
        await update(transaction.manager, 2);
      }),
      world.other.transaction(async (manager) => {
        await update(manager, 2);
        await new Promise((resolve) => setTimeout(resolve, 100));
        await update(manager, 1);
      }),
    ]);
    await transaction.rollback();
    const [failed, ...more] = outcomes.filter((outcome) => outcome.status === 'rejected');
    expect(failed?.reason).toMatchObject({ code: '40P01' });
    expect(more).toEqual([]);
    expect(await world.effects.count()).toBe(2);
  });

  it('commit() and rollback() after the end change nothing', async () => {
    const transaction = await world.open('e1');
    await transaction.commit();
    expect(await rejection(transaction.commit())).toMatchObject({ code: 'TRANSACTION_ENDED' });
    await transaction.rollback();
    transaction.destroy(new Error('too late'));
    expect(transaction.phase).toBe('committed');
    expect(await world.effects.count()).toBe(0);
  });

  it.each<[string, (manager: EntityManager) => Promise<unknown>]>([
    ['F31 COMMIT', (m) => m.query('COMMIT')],
    ['F31 end, in a comment', (m) => m.query('/* x */ -- y\n end')],
    ['F31 ROLLBACK', (m) => m.query('ROLLBACK')],
    ['F31 ROLLBACK AND CHAIN', (m) => m.query('ROLLBACK AND CHAIN')],
    ['F31 BEGIN', (m) => m.query('BEGIN')],
    ['F31 START TRANSACTION', (m) => m.query('START TRANSACTION')],
    ['F31 commitTransaction() of the runner', (m) => m.queryRunner!.commitTransaction()],
    ['F31 rollbackTransaction() of the runner', (m) => m.queryRunner!.rollbackTransaction()],
    [
      'F31 COMMIT on the connection',
      async (m) => ((await m.queryRunner!.connect()) as { query(text: string): Promise<unknown> }).query('COMMIT'),
    ],
  ])('%s by hand is not sent, and the transaction cannot be committed', async (_what, act) => {
    const transaction = await world.open('e1');
    await transaction.within(async () => {
      await world.effects.insert({ name: 'a' });
      expect(await rejection(act(transaction.manager))).toMatchObject({ code: 'HAND_MADE_COMMIT' });
    });
    expect(await rejection(transaction.commit())).toMatchObject({
      code: 'HAND_MADE_COMMIT',
      message: expect.stringContaining('orders-0@e1') as string,
    });
    expect([await world.effectNames(), await world.claimIds()]).toEqual([[], []]);
    expect(await world.effects.count()).toBe(0);
  });

  it.each([
    'SELECT 1; COMMIT',
    'SELECT 1; COMMIT; BEGIN',
    'SELECT 1; COMMIT; SELECT 1/0',
    'SELECT 1; ROLLBACK AND CHAIN',
    'SELECT 1; START TRANSACTION',
    'SAVEPOINT a; ROLLBACK TO a; ROLLBACK AND CHAIN',
    `SELECT 1; PREPARE TRANSACTION 'refused by this server'`,
    'INSERT INTO child VALUES (99); COMMIT',
    'INSERT INTO child VALUES (99); COMMIT; BEGIN',
  ])(
    'F31 %s is seen when PostgreSQL answers: nothing that follows or waits is written, and the attempt fails',
    async (text) => {
      await world.other.query(`CREATE TABLE child (parent int REFERENCES effect (id) DEFERRABLE INITIALLY DEFERRED)`);
      const transaction = await world.open('e1');
      await transaction.within(async () => {
        const together = [world.dataSource.query(text), world.effects.insert({ name: 'waiting' })];
        await Promise.allSettled(together);
        expect(await rejection(world.effects.insert({ name: 'after' }))).toMatchObject({ code: 'HAND_MADE_COMMIT' });
      });
      expect(await rejection(transaction.commit())).toMatchObject({ code: 'HAND_MADE_COMMIT' });
      expect(await world.effectNames()).toEqual([]);
      expect(await world.effects.count()).toBe(0);
    },
  );

  it('a savepoint made by hand and rolled back to is no hand-made commit', async () => {
    await world.scope.run(async (manager) => {
      await manager.query('SAVEPOINT mine');
      await manager.query('SELECT 1/0').catch(() => undefined);
      await manager.query('ROLLBACK TO SAVEPOINT mine');
      await manager.query(` rollback work to mine ; `);
      await world.effects.insert({ name: 'a' });
    });
    expect(await world.effectNames()).toEqual(['a']);
  });

  it('a ROLLBACK TO that fails does not make room for a ROLLBACK AND CHAIN', async () => {
    const transaction = await world.open('e1');
    await transaction.within(async () => {
      await world.dataSource.query('SAVEPOINT a');
      await rejection(world.dataSource.query('ROLLBACK TO nothing'));
      await world.dataSource.query('ROLLBACK TO a');
      await world.dataSource.query('SELECT 1; ROLLBACK AND CHAIN').catch(() => undefined);
    });
    expect(await rejection(transaction.commit())).toMatchObject({ code: 'HAND_MADE_COMMIT' });
  });
});

describe.each(versions)('subscribers of a transaction, %s', (_name, orm) => {
  beforeEach(() => reset(''));
  const world = useWorld(orm, database, { subscribers: (o) => recorder(o) as never[], poolSize: 1 });

  function reset(at: string): void {
    calls.length = 0;
    failAt = at;
  }

  it('are called as TypeORM calls them', async () => {
    reset('');
    await world.dataSource.transaction((manager) => manager.insert('effect', { name: 'a' }));
    const asTypeOrm = [...calls];
    reset('');
    await world.scope.run(() => world.effects.insert({ name: 'b' }));
    expect(calls).toEqual(asTypeOrm);
    reset('');
    await rejection(world.scope.run(() => Promise.reject(new Error('no'))));
    expect(calls).toEqual([
      'beforeTransactionStart',
      'afterTransactionStart',
      'beforeTransactionRollback',
      'afterTransactionRollback',
    ]);
  });

  it('one that fails after COMMIT is neither a failure nor an unknown outcome', async () => {
    reset('afterTransactionCommit');
    const transaction = await world.open('e1');
    await transaction.within(() => world.effects.insert({ name: 'a' }));
    await transaction.commit();
    expect(transaction.phase).toBe('committed');
    expect([await world.effectNames(), await world.claimIds()]).toEqual([['a'], ['e1']]);
  });

  it('one that fails before COMMIT rolls back', async () => {
    reset('beforeTransactionCommit');
    const transaction = await world.open('e1');
    expect((await rejection(transaction.commit())).message).toBe('subscriber at beforeTransactionCommit');
    expect(transaction.phase).toBe('rolled back');
    expect(await world.claimIds()).toEqual([]);
  });

  it.each(['beforeTransactionStart', 'afterTransactionStart'])(
    'one that fails at %s fails open() and leaves the connection to others',
    async (at) => {
      reset(at);
      expect((await rejection(world.open('e1'))).message).toBe(`subscriber at ${at}`);
      expect(await world.claimIds()).toEqual([]);
      expect(await world.effects.count()).toBe(0);
    },
  );

  it.each(['beforeTransactionRollback', 'afterTransactionRollback'])(
    'one that fails at %s does not keep the rollback from happening',
    async (at) => {
      reset(at);
      const transaction = await world.open('e1');
      await transaction.rollback();
      expect(transaction.phase).toBe('rolled back');
      expect(await world.claimIds()).toEqual([]);
      expect(await world.effects.count()).toBe(0);
    },
  );

  it('a savepoint that a subscriber keeps from being undone takes the whole transaction with it', async () => {
    const transaction = await world.open('e1');
    await transaction.within(async () => {
      failAt = 'beforeTransactionRollback';
      const inner = world.dataSource.transaction(async (manager) => {
        await manager.insert('effect', { name: 'a' });
        throw new Error('undo');
      });
      expect((await rejection(inner)).message).toBe('undo');
    });
    expect(await rejection(transaction.commit())).toMatchObject({ code: 'TRANSACTION_ABORTED' });
    expect([await world.effectNames(), await world.claimIds()]).toEqual([[], []]);
  });

  it('a savepoint whose subscriber fails after its RELEASE stays', async () => {
    reset('');
    await world.scope.run(async () => {
      failAt = 'afterTransactionCommit';
      await world.dataSource.transaction(() => world.effects.insert({ name: 'a' }));
    });
    expect(await world.effectNames()).toEqual(['a']);
  });
});
