import { describe, expect, it } from 'vitest';
import { PortalReader, type PortalClient } from './portal-reader.js';
import { rejection, useDatabase, useWorld, versions } from './database.js';

const database = useDatabase();

describe.each(versions)('cursors and the other forms of query(), %s', (_name, orm) => {
  const world = useWorld(orm, database, { poolSize: 1 });
  type Client = PortalClient & { query(...form: unknown[]): unknown; escapeIdentifier(name: string): string };
  const connection = () => world.scope.active!.queryRunner!.connect() as Promise<Client>;

  it('a cursor reads what the transaction wrote, to its end, and the commit goes through', async () => {
    await world.scope.run(async () => {
      await world.dataSource.query(`INSERT INTO effect (name) SELECT 'n' || n FROM generate_series(1, 25) AS n`);
      const reader = new PortalReader('SELECT name FROM effect ORDER BY id', 10);
      (await connection()).query(reader);
      expect(await reader.rest()).toBe(25);
      await world.effects.insert({ name: 'after' });
    });
    expect(await world.effectNames()).toHaveLength(26);
  });

  it('a cursor left open fails the attempt, and its connection is not used again', async () => {
    const transaction = await world.open('e1');
    await transaction.within(async () => {
      const reader = new PortalReader('SELECT generate_series(1, 25)', 10);
      (await connection()).query(reader);
      await reader.batch();
    });
    expect(await rejection(transaction.commit())).toMatchObject({ code: 'QUERY_IN_FLIGHT' });
    expect(await world.effects.count()).toBe(0);
    expect(await world.claimIds()).toEqual([]);
  });

  it('a cursor that fails aborts the transaction, with its error as the cause', async () => {
    const transaction = await world.open('e1');
    await transaction.within(async () => {
      const reader = new PortalReader('SELECT 1 / (3 - n) FROM generate_series(1, 5) AS n', 10);
      (await connection()).query(reader);
      await rejection(reader.rest());
    });
    expect(await rejection(transaction.commit())).toMatchObject({
      code: 'TRANSACTION_ABORTED',
      cause: { code: '22012' },
    });
  });

  it('each form of query() works on the connection', async () => {
    await world.scope.run(async () => {
      const client = await connection();
      const rows = (result: unknown) => (result as { rows: unknown[] }).rows;
      const byCallback = (...form: unknown[]) =>
        new Promise(
          (resolve, reject) =>
            void client.query(...form, (error: unknown, result: unknown) =>
              error ? reject(error as Error) : resolve(rows(result)),
            ),
        );
      const config = Object.freeze({ text: 'SELECT $1::int AS n', values: [5], rowMode: 'array' });
      expect(rows(await client.query('SELECT 1 AS n'))).toEqual([{ n: 1 }]);
      expect(rows(await client.query('SELECT $1::int AS n', [2]))).toEqual([{ n: 2 }]);
      expect(await byCallback('SELECT 3 AS n')).toEqual([{ n: 3 }]);
      expect(await byCallback('SELECT $1::int AS n', [4])).toEqual([{ n: 4 }]);
      expect(rows(await client.query(config))).toEqual([[5]]);
      expect(rows(await client.query(config))).toEqual([[5]]);
      expect(await byCallback({ text: 'SELECT $1::int AS n' }, [6])).toEqual([{ n: 6 }]);
      expect(rows(await client.query({ name: 'mine', text: 'SELECT $1::int AS n', values: [7] }))).toEqual([{ n: 7 }]);
      expect(
        await new Promise(
          (resolve) =>
            void client.query({
              text: 'SELECT 8 AS n',
              callback: (_: unknown, result: unknown) => resolve(rows(result)),
            }),
        ),
      ).toEqual([{ n: 8 }]);
      expect(client.escapeIdentifier('a"b')).toBe('"a""b"');
      expect((await rejection(client.query(undefined) as Promise<unknown>)).message).toContain(
        'must have either text or a name',
      );
    });
  });
});
