import { AsyncResource } from 'node:async_hooks';
import { EventEmitter } from 'node:events';
import type { EntityManager } from 'typeorm';
import { describe, expect, it } from 'vitest';
import { latch, rejection, useDatabase, useWorld, versions, type Orm } from './database.js';

const database = useDatabase();

function lazy(orm: Orm) {
  @orm.Entity({ name: 'author' })
  class Author {
    @orm.PrimaryColumn('int') id!: number;
    @orm.OneToMany(() => Book, 'author') books!: Promise<Book[]>;
  }
  @orm.Entity({ name: 'book' })
  class Book {
    @orm.PrimaryColumn('int') id!: number;
    @orm.ManyToOne(() => Author, 'books') author!: Promise<Author>;
  }
  return [Author, Book];
}

describe.each(versions)('work that comes too late, %s', (_name, orm) => {
  const world = useWorld(orm, database, { entities: (o) => lazy(o) as never[] });

  const connections = async (): Promise<number> => {
    const [row] = await world.other.query<{ n: number }[]>(
      `SELECT count(*)::int AS n FROM pg_stat_activity WHERE application_name = $1`,
      [world.schema],
    );
    return row!.n;
  };

  type Write = (manager: EntityManager) => Promise<unknown>;
  const writes: [string, Write][] = [
    ['an injected repository', () => world.effects.save({ name: 'late' })],
    ['the manager it was given', (manager) => manager.insert('effect', { name: 'late' })],
    ['a query of that manager', (manager) => manager.query(`INSERT INTO effect (name) VALUES ('late')`)],
    ['dataSource.query', () => world.dataSource.query(`INSERT INTO effect (name) VALUES ('late')`)],
    [
      'a query builder',
      () => world.dataSource.createQueryBuilder().insert().into('effect').values({ name: 'late' }).execute(),
    ],
    ['a repository of that manager', (manager) => manager.getRepository('effect').save({ name: 'late' })],
    [
      'dataSource.transaction',
      () => world.dataSource.transaction((manager) => manager.insert('effect', { name: 'late' })),
    ],
    ['TransactionScope.run', () => world.scope.run(() => world.effects.insert({ name: 'late' }))],
    [
      'a stream of its query runner',
      (manager) => manager.queryRunner!.stream(`INSERT INTO effect (name) VALUES ('late')`),
    ],
    ['its query runner', (manager) => manager.queryRunner!.query(`INSERT INTO effect (name) VALUES ('late')`)],
    ['startTransaction() of its query runner', (manager) => manager.queryRunner!.startTransaction()],
  ];

  it.each(writes)('B45 F30 %s is refused after COMMIT, by an error that names the owner', async (_what, write) => {
    const transaction = await world.open('e1');
    const late = transaction.within(() => AsyncResource.bind(() => rejection(write(transaction.manager))));
    await transaction.commit();
    const before = await connections();
    expect(await late()).toMatchObject({
      code: 'TRANSACTION_ENDED',
      message: expect.stringContaining("consumer 'test', orders-0@e1") as string,
    });
    expect(await connections()).toBe(before);
    expect(await world.effectNames()).toEqual([]);
  });

  it.each(writes)('B45 F30 %s is refused after ROLLBACK', async (_what, write) => {
    const transaction = await world.open('e1');
    const late = transaction.within(() => AsyncResource.bind(() => rejection(write(transaction.manager))));
    await transaction.rollback();
    expect(await late()).toMatchObject({ code: 'TRANSACTION_ENDED' });
    expect(await world.effectNames()).toEqual([]);
  });

  it('the connection itself is refused, in each form of query()', async () => {
    const transaction = await world.open('e1');
    const client = (await transaction.manager.queryRunner!.connect()) as {
      query(...form: unknown[]): Promise<unknown>;
    };
    await transaction.rollback();
    const text = `INSERT INTO effect (name) VALUES ('late')`;
    const byCallback = (...form: unknown[]) =>
      new Promise<unknown>((resolve) => void client.query(...form, (error: unknown) => resolve(error)));
    const submitted = new Promise(
      (resolve) =>
        void client.query({
          text,
          submit: () => undefined,
          handleReadyForQuery: () => undefined,
          handleError: resolve,
        }),
    );
    const errors = [
      await rejection(client.query(text)),
      await rejection(client.query(`INSERT INTO effect (name) VALUES ($1)`, ['late'])),
      await rejection(client.query({ text })),
      await byCallback(text),
      await byCallback(`INSERT INTO effect (name) VALUES ($1)`, ['late']),
      await new Promise((resolve) => void client.query({ text, callback: resolve })),
      await submitted,
    ];
    expect(errors.map((error) => (error as { code?: string }).code)).toEqual(errors.map(() => 'TRANSACTION_ENDED'));
    expect(await world.effectNames()).toEqual([]);
  });

  it.each<[string, (fail: (error: unknown) => void) => void]>([
    ['save', (fail) => void world.effects.save({ name: 'late' }).catch(fail)],
    ['insert', (fail) => void world.effects.insert({ name: 'late' }).catch(fail)],
    ['query', (fail) => void world.dataSource.query(`INSERT INTO effect (name) VALUES ('late')`).catch(fail)],
    ['several inserts', (fail) => ['x', 'y'].forEach((name) => void world.effects.insert({ name }).catch(fail))],
    [
      'a nested transaction',
      (fail) => void world.dataSource.transaction((m) => m.insert('effect', { name: 'late' })).catch(fail),
    ],
    [
      'a chain of statements',
      (fail) =>
        void world.effects
          .save({ name: 'x' })
          .then(() => world.effects.save({ name: 'y' }))
          .catch(fail),
    ],
  ])('B45 F30 an un-awaited %s fails the attempt, and nothing is written', async (_what, start) => {
    const transaction = await world.open('e1');
    transaction.within(() => start(() => undefined));
    expect(await rejection(transaction.commit())).toMatchObject({
      code: 'QUERY_IN_FLIGHT',
      message: expect.stringContaining('orders-0@e1') as string,
    });
    expect([await world.effectNames(), await world.claimIds()]).toEqual([[], []]);
  });

  it('B45 F30 an un-awaited nested transaction that is idle when the work has settled fails the attempt', async () => {
    const transaction = await world.open('e1');
    const idle = latch();
    await transaction.within(async () => {
      void world.dataSource
        .transaction(async (manager) => {
          await manager.insert('effect', { name: 'half' });
          idle.open();
          await new Promise((resolve) => setTimeout(resolve, 50));
        })
        .catch(() => undefined);
      await idle.opened;
    });
    expect(await rejection(transaction.commit())).toMatchObject({ code: 'QUERY_IN_FLIGHT' });
    expect([await world.effectNames(), await world.claimIds()]).toEqual([[], []]);
  });

  it('B45 F30 an un-awaited save beside a failure is not written after the ROLLBACK', async () => {
    for (let n = 0; n < 20; n += 1) {
      const ended = latch();
      const work = world.scope.run(async () => {
        void world.effects.save({ name: 'late' }).then(ended.open, ended.open);
        throw new Error('the work failed');
      });
      expect((await rejection(work)).message).toBe('the work failed');
      await ended.opened;
    }
    expect(await world.effectNames()).toEqual([]);
  });

  it('B45 a statement that a timer issues after the end writes nothing, and the process goes on', async () => {
    const transaction = await world.open('e1');
    const late = transaction.within(() =>
      new Promise((resolve) => setTimeout(resolve, 50)).then(() =>
        rejection(transaction.manager.query(`INSERT INTO effect (name) VALUES ('late')`)),
      ),
    );
    await transaction.commit();
    expect(await late).toMatchObject({ code: 'TRANSACTION_ENDED' });
    expect([await world.effectNames(), await world.claimIds()]).toEqual([[], ['e1']]);
  });

  it('B61 a listener that runs on in the context of an ended transaction is refused; in escape() it works', async () => {
    const emitter = new EventEmitter();
    const outcomes: Promise<unknown>[] = [];
    emitter.on('x', () =>
      outcomes.push(
        new Promise((resolve) => setTimeout(resolve, 30)).then(() => rejection(world.effects.insert({ name: 'late' }))),
      ),
    );
    emitter.on('x', () =>
      outcomes.push(
        world.scope.escape(() =>
          new Promise((resolve) => setTimeout(resolve, 30)).then(() => world.effects.insert({ name: 'free' })),
        ),
      ),
    );
    const transaction = await world.open('e1');
    transaction.within(() => emitter.emit('x'));
    await transaction.commit();
    expect((await Promise.all(outcomes))[0]).toMatchObject({ code: 'TRANSACTION_ENDED' });
    expect(await world.effectNames()).toEqual(['free']);
  });

  it('B61 a manager kept from one transaction is refused inside the next', async () => {
    let kept: EntityManager | undefined;
    await world.scope.run(async (manager) => void (kept = manager));
    await world.scope.run(async () => {
      expect(await rejection(kept!.insert('effect', { name: 'late' }))).toMatchObject({ code: 'TRANSACTION_ENDED' });
      expect(await rejection(kept!.query('SELECT 1'))).toMatchObject({ code: 'TRANSACTION_ENDED' });
      await world.effects.insert({ name: 'own' });
    });
    expect(await world.effectNames()).toEqual(['own']);
  });

  it('B61 100 transactions at once do not see one another', async () => {
    const txid = async (): Promise<string> =>
      (await world.dataSource.query<{ id: string }[]>('SELECT txid_current()::text AS id'))[0]!.id;
    const ids = await Promise.all(
      Array.from({ length: 100 }, (_, n) =>
        world.scope.run(async () => {
          const first = await txid();
          await world.effects.insert({ name: `n${n}` });
          await new Promise((resolve) => setTimeout(resolve, n % 7));
          expect(await txid()).toBe(first);
          expect(await world.effects.countBy({ name: `n${n}` })).toBe(1);
          return first;
        }),
      ),
    );
    expect(new Set(ids).size).toBe(100);
    expect(await world.effectNames()).toHaveLength(100);
  });

  it('a lazy relation is loaded in the transaction while it is open, and on a connection of its own by whoever keeps the entity', async () => {
    await world.other.query('INSERT INTO author VALUES (1)');
    await world.other.query('INSERT INTO book VALUES (1, 1)');
    const authors = world.dataSource.getRepository<{ id: number; books: Promise<unknown[]> }>('Author');
    const [first, second] = await world.scope.run(async () => {
      const one = await authors.findOneByOrFail({ id: 1 });
      expect(await one.books).toHaveLength(1);
      return [one, await authors.findOneByOrFail({ id: 1 })] as const;
    });
    expect(await first.books).toHaveLength(1);
    await world.other.query('INSERT INTO book VALUES (2, 1)');
    expect(await second.books).toHaveLength(2);
  });
});
