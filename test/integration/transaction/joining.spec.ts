import type { DataSource, Repository } from 'typeorm';
import { describe, expect, it } from 'vitest';
import { TransactionScope } from '#src/transaction/transaction-scope.js';
import { rejection, useDatabase, useWorld, versions, type Orm } from './database.js';
import { effectEntity } from './fixtures.js';

const database = useDatabase();

const TXID = `SELECT txid_current()::text AS id`;

function activeRecord(orm: Orm) {
  @orm.Entity({ name: 'note' })
  class Note extends orm.BaseEntity {
    @orm.PrimaryColumn('int') id!: number;
    @orm.Column('text') text!: string;
  }
  return Note;
}

function tree(orm: Orm) {
  @orm.Entity({ name: 'node' })
  @orm.Tree('materialized-path')
  class Node {
    @orm.PrimaryColumn('int') id!: number;
    @orm.TreeParent() parent!: Node | null;
    @orm.TreeChildren() children!: Node[];
  }
  return Node;
}

describe.each(versions)('what joins a transaction, %s', (_name, orm) => {
  const world = useWorld(orm, database, { entities: (o) => [activeRecord(o), tree(o)] as never[] });
  const Note = () =>
    world.dataSource.entityMetadatas.find((each) => each.name === 'Note')!.target as ReturnType<typeof activeRecord>;
  const Node = () =>
    world.dataSource.entityMetadatas.find((each) => each.name === 'Node')!.target as ReturnType<typeof tree>;

  /** Runs the work in a transaction that is rolled back, and says what is left in each table: nothing, if all of it joined. */
  async function leftAfterRollback(work: () => Promise<unknown>): Promise<number> {
    const transaction = await world.open();
    await transaction.within(work);
    await transaction.rollback();
    const [row] = await world.other.query<{ n: string }[]>(
      `SELECT (SELECT count(*) FROM effect) + (SELECT count(*) FROM note) + (SELECT count(*) FROM node) AS n`,
    );
    expect(world.events).toEqual([]);
    return Number(row?.n);
  }

  const writers: [string, () => Promise<unknown>][] = [
    ['an injected repository', () => world.effects.save({ name: 'a' })],
    ['repository.insert', () => world.effects.insert({ name: 'a' })],
    ['repository.upsert', () => world.effects.upsert({ id: 7, name: 'a' }, ['id'])],
    ['repository.query', () => world.effects.query(`INSERT INTO effect (name) VALUES ('a')`)],
    ['a repository query builder', () => world.effects.createQueryBuilder().insert().values({ name: 'a' }).execute()],
    [
      'a custom repository',
      () =>
        world.effects
          .extend({
            add(this: Repository<{ name: string }>) {
              return this.insert({ name: 'a' });
            },
          })
          .add(),
    ],
    ['manager.withRepository', () => world.dataSource.manager.withRepository(world.effects).save({ name: 'a' })],
    ['dataSource.manager', () => world.dataSource.manager.insert('effect', { name: 'a' })],
    ['dataSource.query', () => world.dataSource.query(`INSERT INTO effect (name) VALUES ($1)`, ['a'])],
    ['dataSource.sql', () => world.dataSource.sql`INSERT INTO effect (name) VALUES (${'a'})`],
    [
      'dataSource.createQueryBuilder()',
      () => world.dataSource.createQueryBuilder().insert().into('effect').values({ name: 'a' }).execute(),
    ],
    [
      'dataSource.createQueryBuilder(entity, alias)',
      () => world.dataSource.createQueryBuilder('effect', 'e').insert().values({ name: 'a' }).execute(),
    ],
    [
      'manager.createQueryBuilder',
      () => world.dataSource.manager.createQueryBuilder().insert().into('effect').values({ name: 'a' }).execute(),
    ],
    [
      'dataSource.transaction',
      () => world.dataSource.transaction((manager) => manager.insert('effect', { name: 'a' })),
    ],
    [
      'manager.clear',
      async () => {
        await world.effects.insert({ name: 'a' });
        await world.effects.clear();
        await world.effects.insert({ name: 'b' });
      },
    ],
    ['BaseEntity', () => Note().insert({ id: 1, text: 'a' })],
    [
      'a tree repository',
      async () => {
        const nodes = world.dataSource.getTreeRepository(Node());
        const parent = await nodes.save({ id: 1 });
        await nodes.save({ id: 2, parent });
        expect((await nodes.findTrees())[0]?.children).toHaveLength(1);
      },
    ],
    ['the manager of active', () => world.scope.active!.insert('effect', { name: 'a' })],
  ];
  it.each(writers)('%s joins', async (_what, write) => {
    expect(await leftAfterRollback(write)).toBe(0);
  });

  it('reads see what the transaction wrote, others do not', async () => {
    await world.scope.run(async () => {
      await world.effects.insert({ name: 'a' });
      expect(await world.effects.count()).toBe(1);
      expect(await world.effects.find()).toHaveLength(1);
      expect(await world.effectNames()).toEqual([]);
    });
  });

  it('B10 as many transactions as the pool has connections all finish: nothing in them takes another one', async () => {
    const work = Array.from({ length: 4 }, (_, n) => async () => {
      await world.effects.save({ name: `n${n}` });
      await new Promise((resolve) => setTimeout(resolve, 20));
      await world.dataSource.transaction(() => world.effects.createQueryBuilder('e').getMany());
      await world.dataSource.query('SELECT 1');
    });
    await Promise.all(work.map((each) => world.scope.run(each)));
    expect(await world.effectNames()).toEqual(['n0', 'n1', 'n2', 'n3']);
  });

  it('run() inside a transaction joins it as a savepoint', async () => {
    await world.scope.run(async () => {
      const [outer] = await world.dataSource.query<{ id: string }[]>(TXID);
      await world.effects.insert({ name: 'kept' });
      const inner = world.scope.run(async (manager) => {
        expect(await manager.query(TXID)).toEqual([outer]);
        await world.effects.insert({ name: 'undone' });
        throw new Error('inner');
      });
      expect((await rejection(inner)).message).toBe('inner');
    });
    expect(await world.effectNames()).toEqual(['kept']);
  });

  it('active is the manager inside, and undefined outside, in escape and after the end', async () => {
    const { scope } = world;
    expect(scope.active).toBeUndefined();
    let after = (): unknown => 'not set';
    await scope.run(async (manager) => {
      expect(scope.active).toBe(manager);
      expect(scope.escape(() => scope.active)).toBeUndefined();
      const { AsyncResource } = await import('node:async_hooks');
      after = AsyncResource.bind(() => scope.active);
    });
    expect(after()).toBeUndefined();
  });

  it('escape() writes outside, and stays when the transaction is rolled back', async () => {
    const transaction = await world.open();
    await transaction.within(async () => {
      await world.effects.insert({ name: 'inside' });
      await world.scope.escape(() => world.effects.insert({ name: 'outside' }));
      await world.scope.escape(() =>
        world.dataSource.transaction((manager) => manager.insert('effect', { name: 'outside too' })),
      );
    });
    await transaction.rollback();
    expect(await world.effectNames()).toEqual(['outside', 'outside too']);
    expect(world.events).toEqual([]);
  });

  it('a query runner made by hand is independent and reported as an escape', async () => {
    const transaction = await world.open();
    await transaction.within(async () => {
      const runner = world.dataSource.createQueryRunner();
      await runner.query(`INSERT INTO effect (name) VALUES ('own')`);
      await runner.release();
    });
    await transaction.rollback();
    expect(await world.effectNames()).toEqual(['own']);
    expect(world.events).toEqual([
      expect.objectContaining({ name: 'escaped', owner: expect.stringContaining('orders-0@e1') as string }),
    ]);
  });

  it('a query builder made outside and run inside is independent and reported as an escape', async () => {
    const builder = world.effects.createQueryBuilder().insert().values({ name: 'own' });
    await world.scope.run(() => builder.execute());
    expect(world.events.map((event) => event.name)).toEqual(['escaped']);
  });

  it('a repository asked for the first time inside works after the transaction and joins the next one', async () => {
    const FirstSeen = Node();
    await world.scope.run(async () => {
      await world.dataSource.getRepository(FirstSeen).insert({ id: 1 });
      await world.dataSource.getTreeRepository(FirstSeen).findRoots();
    });
    expect(await world.dataSource.getRepository(FirstSeen).createQueryBuilder('n').getCount()).toBe(1);
    expect(await world.dataSource.getTreeRepository(FirstSeen).createQueryBuilder('n').getCount()).toBe(1);
    const transaction = await world.open();
    await transaction.within(() =>
      world.dataSource.getRepository(FirstSeen).createQueryBuilder().insert().values({ id: 2 }).execute(),
    );
    await transaction.rollback();
    expect(await world.dataSource.getRepository(FirstSeen).count()).toBe(1);
  });

  it('another DataSource stays apart', async () => {
    const transaction = await world.open();
    await transaction.within(() => world.other.query(`INSERT INTO effect (name) VALUES ('elsewhere')`));
    await transaction.rollback();
    expect(await world.effectNames()).toEqual(['elsewhere']);
  });

  it('joins again after destroy() and initialize()', async () => {
    await world.dataSource.destroy();
    await world.dataSource.initialize();
    expect(await leftAfterRollback(() => world.dataSource.getRepository('effect').save({ name: 'a' }))).toBe(0);
  });

  it('two scopes on one DataSource see one transaction, and the second goes on when the first leaves', async () => {
    const second = new TransactionScope(world.dataSource, { preparedStatements: true, emit: () => undefined });
    second.install();
    second.install();
    await world.scope.run(async (manager) => {
      expect(second.active).toBe(manager);
      await second.run(() => world.effects.insert({ name: 'a' }));
      await world.dataSource.query('SELECT $1::int', [1]);
    });
    world.scope.uninstall();
    const failing = second.run(async () => {
      await world.dataSource.query('SELECT $1::int', [1]);
      await world.effects.insert({ name: 'b' });
      throw new Error('no');
    });
    await rejection(failing);
    expect(await world.effectNames()).toEqual(['a']);
    second.uninstall();
    expect(Object.hasOwn(world.dataSource, 'query')).toBe(false);
  });

  it('uninstall() leaves the DataSource as it was found', async () => {
    world.scope.uninstall();
    for (const object of [world.dataSource, world.dataSource.manager]) {
      for (const name of [
        'query',
        'createQueryBuilder',
        'createQueryRunner',
        'queryRunner',
        'transaction',
        'getRepository',
        'getTreeRepository',
      ]) {
        expect(Object.hasOwn(object, name), name).toBe(false);
      }
    }
    world.scope.install();
    expect(await leftAfterRollback(() => world.effects.save({ name: 'a' }))).toBe(0);
  });

  it('outside a transaction the DataSource works as without us', async () => {
    await world.effects.save({ name: 'a' });
    await world.dataSource.transaction('SERIALIZABLE', (manager) => manager.insert('effect', { name: 'b' }));
    expect(await world.dataSource.query(`SELECT count(*)::int AS n FROM effect`)).toEqual([{ n: 2 }]);
    expect(world.events).toEqual([]);
  });

  it('a slave read of a replicated DataSource goes to the transaction', async () => {
    const Effect = effectEntity(orm);
    const url = database.url;
    const readOnly = new URL(url);
    readOnly.searchParams.set('options', `-c default_transaction_read_only=on -c search_path=${world.schema}`);
    const replicated: DataSource = await new orm.DataSource({
      type: 'postgres',
      schema: world.schema,
      installExtensions: false,
      entities: [Effect],
      extra: { options: `-c search_path=${world.schema}` },
      replication: { master: { url }, slaves: [{ url: readOnly.href }], defaultMode: 'slave' },
    }).initialize();
    const scope = new TransactionScope(replicated, { preparedStatements: true, emit: () => undefined });
    scope.install();
    try {
      await scope.run(async () => {
        await replicated.getRepository(Effect).insert({ name: 'a' });
        expect(await replicated.getRepository(Effect).find()).toHaveLength(1);
      });
    } finally {
      scope.uninstall();
      await replicated.destroy();
    }
  });

  describe('join()', () => {
    it('lets repositories work in a transaction that the caller opened', async () => {
      const runner = world.dataSource.createQueryRunner();
      await runner.startTransaction();
      await world.scope.join(runner.manager, async () => {
        await world.effects.insert({ name: 'a' });
        await world.dataSource.transaction(() => world.effects.insert({ name: 'b' }));
        expect(world.scope.active).toBe(runner.manager);
      });
      await runner.rollbackTransaction();
      await runner.release();
      expect(await world.effectNames()).toEqual([]);
    });

    it('refuses what comes after its work has settled, though the transaction is still open', async () => {
      const late: Promise<Error>[] = [];
      await world.dataSource.transaction(async (manager) => {
        await world.scope.join(manager, async () => {
          late.push(
            new Promise((resolve) => setTimeout(resolve, 20)).then(() =>
              rejection(world.effects.insert({ name: 'late' })),
            ),
          );
        });
        await Promise.all(late);
      });
      expect((await Promise.all(late)).map((error) => (error as { code?: string }).code)).toEqual([
        'TRANSACTION_ENDED',
      ]);
      expect(await world.effectNames()).toEqual([]);
    });

    it('refuses a manager that is in no open transaction', async () => {
      expect(await rejection(world.scope.join(world.dataSource.manager, async () => undefined))).toMatchObject({
        code: 'OUTSIDE_TRANSACTION',
      });
      const runner = world.dataSource.createQueryRunner();
      expect(await rejection(world.scope.join(runner.manager, async () => undefined))).toMatchObject({
        code: 'OUTSIDE_TRANSACTION',
      });
      await runner.release();
    });

    it('takes the manager of a scope transaction back into its context', async () => {
      const transaction = await world.open();
      await world.scope.join(transaction.manager, () => world.effects.insert({ name: 'a' }));
      await transaction.rollback();
      expect(await world.effectNames()).toEqual([]);
      expect(
        await rejection(world.scope.join(transaction.manager, () => world.effects.insert({ name: 'b' }))),
      ).toMatchObject({ code: 'TRANSACTION_ENDED' });
    });
  });
});
