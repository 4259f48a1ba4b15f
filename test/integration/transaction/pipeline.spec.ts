import { describe, expect, it } from 'vitest';
import type { OpenTransaction, Piece } from '#src/transaction/open-transaction.js';
import { latch, rejection, useDatabase, useWorld, versions } from './database.js';
import { PortalReader, type PortalClient } from './portal-reader.js';

const database = useDatabase();

function ended(transaction: OpenTransaction, piece: Piece): Promise<void> {
  return new Promise((resolve, reject) =>
    transaction.endPiece(piece, undefined, (error) => (error === undefined ? resolve() : reject(error as Error))),
  );
}

describe.each(versions)('several pieces of one transaction at once, %s', (_name, orm) => {
  const world = useWorld(orm, database, { poolSize: 1 });

  /** A transaction whose connection is pipelined, with so many pieces. */
  async function pipelined(count: number): Promise<{ transaction: OpenTransaction; pieces: Piece[] }> {
    const transaction = await world.open('e1');
    transaction.pipeline();
    return { transaction, pieces: Array.from({ length: count }, () => transaction.beginPiece()) };
  }

  const insert = (name: string) => world.dataSource.query('INSERT INTO effect (name) VALUES ($1)', [name]);

  it('a statement is sent before those of others are answered, and answered behind them', async () => {
    const { transaction, pieces } = await pipelined(2);
    const order: string[] = [];
    const slow = transaction.within(() => world.dataSource.query('SELECT pg_sleep(0.3)'), pieces[0]);
    const quick = transaction.within(() => insert('quick'), pieces[1]);
    await Promise.all([slow.then(() => order.push('slow')), quick.then(() => order.push('quick'))]);
    for (const piece of pieces) await ended(transaction, piece);
    await transaction.commit();
    expect(order).toEqual(['slow', 'quick']);
    expect(await world.effectNames()).toEqual(['quick']);
  });

  it('repositories join in each piece', async () => {
    const { transaction, pieces } = await pipelined(20);
    await Promise.all(
      pieces.map((piece, at) =>
        transaction.within(async () => {
          const saved = await world.effects.save({ name: `n${at}` });
          await world.effects.update({ id: saved.id }, { name: `m${at}` });
        }, piece),
      ),
    );
    for (const piece of pieces) await ended(transaction, piece);
    await transaction.commit();
    expect(await world.effectNames()).toEqual(pieces.map((_, at) => `m${at}`).sort());
  });

  it('what another piece has in flight does not keep one from ending, what it has itself does', async () => {
    const { transaction, pieces } = await pipelined(2);
    const slow = transaction.within(() => world.dataSource.query('SELECT pg_sleep(0.3)'), pieces[0]);
    await ended(transaction, pieces[1]!);
    expect(await rejection(ended(transaction, pieces[0]!))).toMatchObject({ code: 'QUERY_IN_FLIGHT' });
    await slow;
    await transaction.rollback();
  });

  it('a save() that a piece left un-awaited keeps it from ending, though nothing of it has reached the connection yet', async () => {
    const { transaction, pieces } = await pipelined(1);
    const saving = transaction.within(() => world.effects.save({ name: 'late' }), pieces[0]).catch(() => undefined);
    expect(await rejection(ended(transaction, pieces[0]!))).toMatchObject({ code: 'QUERY_IN_FLIGHT' });
    await saving;
    await transaction.rollback();
    expect(await world.effectNames()).toEqual([]);
  });

  it('of pieces that fail the one whose statement failed first is to blame, whatever the others got', async () => {
    const { transaction, pieces } = await pipelined(3);
    const failures = await Promise.all([
      transaction.within(() => insert('a'), pieces[0]).catch((error: unknown) => error),
      rejection(transaction.within(() => world.dataSource.query('SELECT 1 / 0'), pieces[1])),
      rejection(transaction.within(() => insert('c'), pieces[2])),
    ]);
    expect(failures.slice(1)).toMatchObject([{ code: '22012' }, { code: '25P02' }]);
    expect(pieces.map((piece) => transaction.isBrokenByOther(piece))).toEqual([true, false, true]);
    expect(await rejection(ended(transaction, pieces[1]!))).toMatchObject({
      code: 'TRANSACTION_ABORTED',
      cause: { code: '22012' },
    });
    await transaction.rollback();
  });

  it('a nested transaction that is rolled back takes nothing of another piece with it, and the other waits for its end', async () => {
    const { transaction, pieces } = await pipelined(2);
    const [inside, goOn] = [latch(), latch()];
    const nested = transaction.within(
      () =>
        world.dataSource.transaction(async (manager) => {
          await manager.query(`INSERT INTO effect (name) VALUES ('undone')`);
          inside.open();
          await goOn.opened;
          throw new Error('undo this');
        }),
      pieces[0],
    );
    await inside.opened;
    const beside = transaction.within(() => insert('beside'), pieces[1]);
    // Longer than code of one piece waits for itself: nothing of another one is let in.
    await expect(Promise.race([beside, new Promise((resolve) => setTimeout(resolve, 1500, 'waits'))])).resolves.toBe(
      'waits',
    );
    goOn.open();
    await rejection(nested);
    await beside;
    for (const piece of pieces) await ended(transaction, piece);
    await transaction.commit();
    expect(await world.effectNames()).toEqual(['beside']);
  });

  it('nested transactions of all pieces at once follow one another', async () => {
    const { transaction, pieces } = await pipelined(10);
    await Promise.all(
      pieces.map((piece, at) =>
        transaction.within(async () => {
          await insert(`before ${at}`);
          await world.dataSource
            .transaction(async () => {
              await insert(`in ${at}`);
              if (at % 2 === 1) throw new Error('undo this');
            })
            .catch(() => undefined);
          await insert(`after ${at}`);
        }, piece),
      ),
    );
    for (const piece of pieces) await ended(transaction, piece);
    await transaction.commit();
    const expected = pieces.flatMap((_, at) => [`after ${at}`, `before ${at}`, ...(at % 2 === 1 ? [] : [`in ${at}`])]);
    expect(await world.effectNames()).toEqual(expected.sort());
  });

  it.each<[string, (client: PortalClient) => Promise<unknown>]>([
    ['a cursor or a stream', (client) => reading(client).rest()],
    // Its Sync is not answered: whatever is on the wire behind it would wait for ever.
    ['COPY FROM STDIN', () => world.dataSource.query('COPY effect (name) FROM STDIN')],
  ])('%s is refused, and its piece is to blame even if it goes on', async (_what, use) => {
    const { transaction, pieces } = await pipelined(2);
    await transaction.within(async () => {
      const client = (await world.scope.active!.queryRunner!.connect()) as PortalClient;
      await rejection(use(client));
    }, pieces[0]);
    expect(await rejection(ended(transaction, pieces[0]!))).toMatchObject({ code: 'TRANSACTION_ABORTED' });
    expect(pieces.map((piece) => transaction.isBrokenByOther(piece))).toEqual([false, true]);
    expect(await rejection(transaction.within(() => insert('b'), pieces[1]))).toMatchObject({
      message: expect.stringContaining('concurrency.interleave') as string,
    });
    await transaction.rollback();
  });

  it('COMMIT behind another command of one text is refused by PostgreSQL, so that nothing on the wire behind it is committed', async () => {
    const { transaction, pieces } = await pipelined(2);
    const failed = rejection(
      transaction.within(() => world.dataSource.query(`INSERT INTO effect (name) VALUES ('a'); COMMIT`), pieces[0]),
    );
    const behind = rejection(transaction.within(() => insert('b'), pieces[1]));
    expect([await failed, await behind]).toMatchObject([{ code: '42601' }, { code: '25P02' }]);
    expect(transaction.isBrokenByOther(pieces[0]!)).toBe(false);
    await transaction.rollback();
    expect(await world.effectNames()).toEqual([]);
    expect(await world.claimIds()).toEqual([]);
  });

  it('COMMIT by hand dooms the transaction and is blamed on its piece', async () => {
    const { transaction, pieces } = await pipelined(2);
    await transaction.within(() => rejection(world.dataSource.query('COMMIT')), pieces[0]);
    expect(pieces.map((piece) => transaction.isBrokenByOther(piece))).toEqual([false, true]);
    expect(await rejection(transaction.commit())).toMatchObject({ code: 'HAND_MADE_COMMIT' });
    expect(await world.claimIds()).toEqual([]);
  });

  it.each(['commit', 'rollback'] as const)(
    'after %s the connection reads cursors for others, and statements that were prepared on it work',
    async (end) => {
      const session = async () =>
        (await world.dataSource.query<[{ pid: number }]>('SELECT pg_backend_pid() AS pid'))[0].pid;
      const before = await session();
      for (let round = 0; round < 3; round += 1) {
        const transaction = await world.open(`e${round}`);
        transaction.pipeline();
        const pieces = Array.from({ length: 12 }, () => transaction.beginPiece());
        const statements = pieces.map((piece, at) =>
          transaction.within(() => {
            if (end === 'rollback' && at === 2) return world.dataSource.query('SELECT 1 / $1::int', [0]);
            return world.dataSource.query(`INSERT INTO effect (name) VALUES ($1), ('${at % 3}')`, [`n${at}`]);
          }, piece),
        );
        await Promise.allSettled(statements);
        await transaction[end]();
      }
      await world.scope.run(async () => {
        const client = (await world.scope.active!.queryRunner!.connect()) as PortalClient;
        expect(await reading(client).rest()).toBe(25);
      });
      expect(await session()).toBe(before); // though behind the error some were not known
      expect(await world.effectNames()).toHaveLength(end === 'commit' ? 3 * 24 : 0);
    },
  );

  it('an end by force is the end of all pieces', async () => {
    const { transaction, pieces } = await pipelined(2);
    const slow = rejection(transaction.within(() => world.dataSource.query('SELECT pg_sleep(30)'), pieces[0]));
    const behind = rejection(transaction.within(() => insert('b'), pieces[1]));
    transaction.destroy(new Error('too late'));
    expect([await slow, await behind]).toMatchObject([{ code: 'TRANSACTION_ENDED' }, { code: 'TRANSACTION_ENDED' }]);
    expect(pieces.map((piece) => transaction.isBrokenByOther(piece))).toEqual([true, true]);
    expect(await world.effectNames()).toEqual([]);
  });

  function reading(client: PortalClient): PortalReader {
    const reader = new PortalReader('SELECT generate_series(1, 25)', 10);
    client.query(reader);
    return reader;
  }
});
