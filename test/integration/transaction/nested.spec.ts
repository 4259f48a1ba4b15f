import type { EntityManager } from 'typeorm';
import { describe, expect, it } from 'vitest';
import { latch, rejection, useDatabase, useWorld, versions } from './database.js';

const database = useDatabase();

describe.each(versions)('nested transactions, %s', (_name, orm) => {
  const world = useWorld(orm, database);

  const nested = (name: string, fail = false): Promise<unknown> =>
    world.dataSource.transaction(async (manager) => {
      await manager.insert('effect', { name });
      await new Promise((resolve) => setTimeout(resolve, 5));
      if (fail) throw new Error(`${name} failed`);
    });
  const caught = (promise: Promise<unknown>): Promise<unknown> => promise.catch(() => undefined);

  it('B46 of five at once one fails and is caught: exactly the other four are written', async () => {
    const transaction = await world.open('e1');
    await transaction.within(() => Promise.all([1, 2, 3, 4, 5].map((n) => caught(nested(`n${n}`, n === 3)))));
    await transaction.commit();
    expect([await world.effectNames(), await world.claimIds()]).toEqual([['n1', 'n2', 'n4', 'n5'], ['e1']]);
  });

  it('B46 of five at once one fails and is not caught: nothing is written', async () => {
    const work = world.scope.run(() => Promise.all([1, 2, 3, 4, 5].map((n) => nested(`n${n}`, n === 3))));
    expect((await rejection(work)).message).toBe('n3 failed');
    expect(await world.effectNames()).toEqual([]);
  });

  it('B46 the first of two fails while the second has begun: the second is written, the first is not', async () => {
    await world.scope.run(() => Promise.all([caught(nested('a', true)), nested('b')]));
    expect(await world.effectNames()).toEqual(['b']);
  });

  it('B46 a plain statement beside a savepoint that fails is written', async () => {
    await world.scope.run(async () => {
      await Promise.all([
        caught(nested('undone', true)),
        world.effects.insert({ name: 'beside' }),
        world.dataSource.query(`INSERT INTO effect (name) VALUES ('query')`),
      ]);
    });
    expect(await world.effectNames()).toEqual(['beside', 'query']);
  });

  it('B46 several levels at once, some failing, keep exactly what was not undone', async () => {
    await world.scope.run(() =>
      Promise.all(
        ['a', 'b', 'c'].map((name) =>
          world.dataSource
            .transaction(async () => {
              await Promise.all([
                caught(nested(`${name}1`, true)),
                nested(`${name}2`),
                world.effects.insert({ name: `${name}0` }),
              ]);
              if (name === 'b') throw new Error('b');
            })
            .catch(() => undefined),
        ),
      ),
    );
    expect(await world.effectNames()).toEqual(['a0', 'a2', 'c0', 'c2']);
  });

  it('B46 when one inner fails its outer is undone as a whole, though the sibling still runs', async () => {
    await world.scope.run(async () => {
      await world.effects.insert({ name: 'kept' });
      const outer = world.dataSource.transaction(() =>
        Promise.all([nested('x', true), nested('y'), world.effects.insert({ name: 'z' })]),
      );
      expect((await rejection(outer)).message).toBe('x failed');
      await world.effects.insert({ name: 'kept too' });
    });
    expect(await world.effectNames()).toEqual(['kept', 'kept too']);
  });

  it('B46 random trees of nested transactions write what a sequential run would', async () => {
    let seed = 7;
    const random = (): number => (seed = (seed * 48271) % 2147483647) / 2147483647;
    for (let round = 0; round < 15; round += 1) {
      const expected: string[] = [];
      let count = 0;
      const grow = (manager: () => EntityManager, depth: number, into: string[]): Promise<unknown>[] =>
        Array.from({ length: 1 + Math.floor(random() * 3) }, () => {
          const name = `r${round}-${(count += 1)}`;
          if (depth === 0 || random() < 0.4) {
            into.push(name);
            return manager().insert('effect', { name });
          }
          const fails = random() < 0.4;
          const inner: string[] = [];
          const branches = (m: EntityManager) =>
            grow(() => (random() < 0.5 ? m : world.dataSource.manager), depth - 1, inner);
          const work = world.dataSource.transaction(async (m) => {
            await Promise.all(branches(m));
            if (fails) throw new Error('undo');
          });
          return work.then(
            () => void into.push(...inner),
            () => undefined,
          );
        });
      await world.other.query('TRUNCATE effect');
      await world.scope.run(() => Promise.all(grow(() => world.dataSource.manager, 3, expected)));
      expect(await world.effectNames()).toEqual([...expected].sort());
    }
  });

  it('an error inside a savepoint that was undone is not blamed for a later abort', async () => {
    const transaction = await world.open('e1');
    await transaction.within(async () => {
      await caught(world.dataSource.transaction((manager) => manager.query('SELECT 1/0')));
      await caught(world.dataSource.query(`SELECT 'x'::int`));
    });
    expect(await rejection(transaction.commit())).toMatchObject({
      code: 'TRANSACTION_ABORTED',
      cause: { code: '22P02' },
    });
  });

  it('B19 a failing statement in a savepoint leaves the transaction usable', async () => {
    await world.scope.run(async () => {
      await caught(world.dataSource.transaction((manager) => manager.query('SELECT 1/0')));
      await world.effects.insert({ name: 'a' });
    });
    expect(await world.effectNames()).toEqual(['a']);
  });

  it('an isolation level of its own is refused, and nothing else is disturbed', async () => {
    await world.scope.run(async (manager) => {
      await world.effects.insert({ name: 'a' });
      for (const attempt of [
        () => world.dataSource.transaction('SERIALIZABLE', () => world.effects.insert({ name: 'no' })),
        () => manager.transaction('READ COMMITTED', () => world.effects.insert({ name: 'no' })),
        () => world.scope.run(() => world.effects.insert({ name: 'no' }), { isolation: 'SERIALIZABLE' }),
      ]) {
        expect(await rejection(attempt())).toMatchObject({ code: 'NESTED_ISOLATION' });
      }
      await world.effects.insert({ name: 'b' });
    });
    expect(await world.effectNames()).toEqual(['a', 'b']);
  });

  it('a savepoint that awaits a statement from outside gets on, and both are written', async () => {
    await world.scope.run(async () => {
      const begun = latch();
      let outside: Promise<unknown> = Promise.resolve();
      const inner = world.dataSource.transaction(async () => {
        await world.effects.insert({ name: 'inside' });
        begun.open();
        await new Promise((resolve) => setTimeout(resolve, 10));
        await outside;
      });
      await begun.opened;
      outside = world.effects.insert({ name: 'outside' });
      await Promise.all([inner, outside]);
    });
    expect(await world.effectNames()).toEqual(['inside', 'outside']);
  });

  it('a savepoint that awaits its sibling gets on, and both are written', async () => {
    await world.scope.run(async () => {
      let sibling: Promise<unknown> = Promise.resolve();
      const first = world.dataSource.transaction(async () => {
        await world.effects.insert({ name: 'first' });
        sibling = sibling.then(() => undefined);
        await new Promise((resolve) => setTimeout(resolve, 10));
        await sibling;
        await world.effects.insert({ name: 'first again' });
      });
      sibling = nested('sibling');
      await Promise.all([first, sibling]);
    });
    expect(await world.effectNames()).toEqual(['first', 'first again', 'sibling']);
  });

  it('a savepoint that let a statement from outside in, and is undone, takes the whole transaction with it', async () => {
    const transaction = await world.open('e1');
    await transaction.within(async () => {
      let outside: Promise<unknown> = Promise.resolve();
      const inner = world.dataSource.transaction(async () => {
        await world.effects.insert({ name: 'inside' });
        await new Promise((resolve) => setTimeout(resolve, 10));
        await outside;
        throw new Error('undo');
      });
      await new Promise((resolve) => setTimeout(resolve, 5));
      outside = world.effects.insert({ name: 'outside' });
      await Promise.all([caught(inner), outside]);
      expect(await rejection(world.effects.count())).toMatchObject({ code: 'TRANSACTION_ABORTED' });
    });
    expect(await rejection(transaction.commit())).toMatchObject({ code: 'TRANSACTION_ABORTED' });
    expect([await world.effectNames(), await world.claimIds()]).toEqual([[], []]);
  });

  it('a statement of a savepoint that comes after its RELEASE fails the attempt', async () => {
    const transaction = await world.open('e1');
    const late: Promise<unknown>[] = [];
    await transaction.within(async () => {
      await world.dataSource.transaction(async () => {
        late.push(
          new Promise((resolve) => setTimeout(resolve, 30)).then(() =>
            rejection(world.effects.insert({ name: 'late' })),
          ),
        );
      });
      await Promise.all(late);
    });
    expect(await late[0]).toMatchObject({ code: 'TRANSACTION_ENDED' });
    expect(await rejection(transaction.commit())).toMatchObject({ code: 'QUERY_IN_FLIGHT' });
    expect(await world.claimIds()).toEqual([]);
  });

  it('a statement of a savepoint that comes after its ROLLBACK TO is refused, and the rest is committed', async () => {
    await world.scope.run(async () => {
      const late: Promise<unknown>[] = [];
      const failing = world.dataSource.transaction(async () => {
        late.push(
          new Promise((resolve) => setTimeout(resolve, 30)).then(() =>
            rejection(world.effects.insert({ name: 'late' })),
          ),
        );
        throw new Error('undo');
      });
      await caught(failing);
      await world.effects.insert({ name: 'kept' });
      expect(await late[0]).toMatchObject({ code: 'TRANSACTION_ENDED' });
    });
    expect(await world.effectNames()).toEqual(['kept']);
  });

  it.each([
    ['succeeds', false, ['inner', 'outer']],
    ['fails', true, ['outer']],
  ])('a savepoint ends after one inside it that nobody awaited and that %s', async (_how, fails, expected) => {
    await world.scope.run(() =>
      world.dataSource.transaction(async () => {
        await world.effects.insert({ name: 'outer' });
        const begun = latch();
        const inner = world.dataSource.transaction(async (manager) => {
          await manager.insert('effect', { name: 'inner' });
          begun.open();
          await new Promise((resolve) => setTimeout(resolve, 20));
          if (fails) throw new Error('undo');
        });
        void caught(inner);
        await begun.opened;
      }),
    );
    expect(await world.effectNames()).toEqual(expected);
  });

  it('startTransaction() by hand is refused in favour of dataSource.transaction()', async () => {
    const transaction = await world.open('e1');
    expect(await rejection(transaction.manager.queryRunner!.startTransaction())).toMatchObject({
      code: 'HAND_MADE_COMMIT',
    });
    await transaction.rollback();
  });

  it.each(['commitTransaction', 'rollbackTransaction'] as const)(
    'F31 %s() of the query runner inside a nested transaction is refused, and the transaction cannot be committed',
    async (step) => {
      const transaction = await world.open('e1');
      await transaction.within(async () => {
        const inner = world.dataSource.transaction(async (manager) => {
          await manager.insert('effect', { name: 'a' });
          await manager.queryRunner![step]();
        });
        expect(await rejection(inner)).toMatchObject({ code: 'HAND_MADE_COMMIT' });
      });
      expect(await rejection(transaction.commit())).toMatchObject({ code: 'HAND_MADE_COMMIT' });
      expect([await world.effectNames(), await world.claimIds()]).toEqual([[], []]);
    },
  );

  it('a savepoint that cannot be undone dooms the transaction', async () => {
    const transaction = await world.open('e1');
    await transaction.within(async () => {
      const failing = world.dataSource.transaction(async (manager) => {
        await manager.insert('effect', { name: 'a' });
        await manager.query('RELEASE SAVEPOINT typeorm_1');
        throw new Error('undo');
      });
      expect((await rejection(failing)).message).toBe('undo');
    });
    expect(await rejection(transaction.commit())).toMatchObject({ code: 'TRANSACTION_ABORTED' });
    expect(await world.effectNames()).toEqual([]);
  });
});
