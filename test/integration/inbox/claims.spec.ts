import type { QueryRunner } from 'typeorm';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { constraintCheck } from '#src/handler/deferred-constraints.js';
import { claimsStatement, claimsValues, releaseStatement, type Claim, type Claimed } from '#src/inbox/claim.js';
import { qualifiedTable } from '#src/shared/sql-identifier.js';
import { useDatabase, useSchema, versions } from '../schema/own-schema.js';

const database = useDatabase();

const claimed = (eventId: string, offset: number, consumer = 'one'): Claim => ({
  consumer,
  eventId,
  topic: 'orders',
  partition: 3,
  offset: String(offset),
  fingerprint: '-7',
});

describe.each(versions)('claims of several events on %s', (_, orm) => {
  const own = useSchema(database, orm);
  const table = () => qualifiedTable(own.name, 'processed_events');
  const claim = async (on: QueryRunner, claims: readonly Claim[], lockTimeoutMs = 2000): Promise<string[]> => {
    const statement = claimsStatement(table(), lockTimeoutMs);
    const [row] = (await on.query(statement.text, claimsValues(claims))) as [{ inserted: Claimed }];
    const won = row.inserted === true ? claims.map(({ consumer, offset }) => [consumer, offset]) : row.inserted;
    return won.map(([consumer, offset]) => `${consumer} ${offset}`);
  };
  const sessions: QueryRunner[] = [];
  const session = async (): Promise<QueryRunner> => {
    const runner = own.dataSource.createQueryRunner();
    await runner.connect();
    sessions.push(runner);
    return runner;
  };
  const lockTimeout = async (on: QueryRunner): Promise<string | undefined> =>
    ((await on.query('SHOW lock_timeout')) as { lock_timeout: string }[])[0]?.lock_timeout;

  // Before the schema is dropped, which would wait for them.
  afterEach(async () => {
    for (const runner of sessions.splice(0)) {
      if (runner.isTransactionActive) await runner.rollbackTransaction();
      await runner.release();
    }
  });

  beforeEach(async () => {
    delete (globalThis as { typeormMetadataArgsStorage?: unknown }).typeormMetadataArgsStorage;
    await own.dataSource.runMigrations();
  });

  it('F42: of an id that comes twice the record that stands first gets the claim, for each consumer', async () => {
    const on = await session();
    const twice = [claimed('a', 12), claimed('a', 9), claimed('b', 10), claimed('a', 11, 'two')];
    expect((await claim(on, twice)).sort()).toEqual(['one 10', 'one 9', 'two 11']);
    expect(await claim(on, twice)).toEqual([]);
  });

  it('takes any text as an id and gives it back unchanged, quotes, backslashes and braces included', async () => {
    const on = await session();
    const texts = ['"', '\\', '\\"', '{}', 'a,b', 'NULL', ' x ', "it's", 'é漢🙂', '{"a":"\\\\n"}'];
    await claim(
      on,
      texts.map((text, at) => claimed(text, at, text)),
    );
    const rows = (await on.query(`SELECT event_id, consumer FROM ${table()} ORDER BY record_offset`)) as unknown[];
    expect(rows).toEqual(texts.map((text) => ({ event_id: text, consumer: text })));
  });

  it('keeps nothing of its lock_timeout, whoever set the one before', async () => {
    const on = await session();
    await on.startTransaction();
    await on.query(`SET LOCAL lock_timeout = '1234ms'`);
    await claim(on, [claimed('a', 1), claimed('b', 2)]);
    expect(await lockTimeout(on)).toBe('1234ms');
    await claim(on, [claimed('a', 1)]); // all of it duplicates
    expect(await lockTimeout(on)).toBe('1234ms');
  });

  it('waits no longer than that for another session, at any of its rows', async () => {
    const [on, other] = [await session(), await session()];
    await other.startTransaction();
    await claim(other, [claimed('c', 1)]);
    await on.startTransaction();
    await expect(claim(on, [claimed('a', 1), claimed('b', 2), claimed('c', 3)], 100)).rejects.toMatchObject({
      code: '55P03',
    });
  });

  it('takes back its own claims and no others', async () => {
    const on = await session();
    await claim(on, [claimed('a', 1), claimed('b', 2), claimed('c', 3)]);
    await on.query(releaseStatement(table()), claimsValues([claimed('a', 1), claimed('b', 7)]));
    const rows = (await on.query(`SELECT event_id FROM ${table()} ORDER BY 1`)) as { event_id: string }[];
    expect(rows.map(({ event_id }) => event_id)).toEqual(['b', 'c']);
  });

  it('deferred constraints are checked by name and set back; without any there is nothing to send', async () => {
    const on = await session();
    const check = () => constraintCheck((sql, values) => on.query(sql, values), [own.name]);
    const here = async () => ((await check()) ?? '').split(/[;,]/).filter((part) => part.includes(own.name));
    expect(await here()).toEqual([]);
    await on.query(`CREATE TABLE ${own.name}."Parent" (id integer PRIMARY KEY)`);
    await on.query(`CREATE TABLE ${own.name}.child (
      first integer CONSTRAINT "it's late" REFERENCES ${own.name}."Parent" DEFERRABLE INITIALLY DEFERRED,
      second integer REFERENCES ${own.name}."Parent" DEFERRABLE)`);
    expect(await here()).toHaveLength(1);
    await on.startTransaction();
    await on.query(`INSERT INTO ${own.name}.child VALUES (1, NULL)`);
    await on.query(`INSERT INTO ${own.name}."Parent" VALUES (1)`);
    await on.query((await check())!);
    await on.query(`INSERT INTO ${own.name}.child VALUES (2, NULL)`);
    await expect((async () => on.query((await check())!))()).rejects.toMatchObject({ code: '23503' });
  });
});
