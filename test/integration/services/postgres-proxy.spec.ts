import { randomBytes } from 'node:crypto';
import pg from 'pg';
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test } from 'vitest';
import { type PostgresProxy, startPostgresProxy, until } from 'nestjs-kafka-idempotency/testing';
import { startEmbeddedPostgres, type EmbeddedPostgresServer } from '../../services/services.js';

let postgres: EmbeddedPostgresServer;
let direct: pg.Pool;
let proxy: PostgresProxy;
let table: string;
let client: pg.Client;
/** What the client heard outside of a query. */
let clientError: Error | undefined;

beforeAll(async () => {
  postgres = await startEmbeddedPostgres();
  direct = new pg.Pool({ connectionString: postgres.databaseUrl });
});

afterAll(async () => {
  await direct.end();
  await postgres.close();
});

beforeEach(async () => {
  proxy = await startPostgresProxy({ target: postgres.databaseUrl });
  table = `t_${randomBytes(4).toString('hex')}`;
  await direct.query(`CREATE TABLE ${table} (id int PRIMARY KEY)`);
  client = await connected();
});

afterEach(async () => {
  await proxy.close();
});

async function connected(): Promise<pg.Client> {
  const opened = new pg.Client({ connectionString: proxy.url });
  clientError = undefined;
  opened.on('error', (error) => (clientError = error));
  await opened.connect();
  return opened;
}

async function rows(): Promise<number[]> {
  const result = await direct.query<{ id: number }>(`SELECT id FROM ${table} ORDER BY id`);
  return result.rows.map(({ id }) => id);
}

/** The ways a client can send one statement. */
const ways: Record<string, (sql: string) => Promise<unknown>> = {
  'as a simple query': (sql) => client.query(sql),
  'as a prepared statement without a name': (sql) =>
    client.query({ text: sql, queryMode: 'extended' } as pg.QueryConfig),
  'as a prepared statement with a name': (sql) => client.query({ name: `s-${sql}`, text: sql }),
};

test('without a fault all goes through', async () => {
  await client.query('BEGIN');
  await client.query(`INSERT INTO ${table} SELECT generate_series(1, 5000)`);
  await client.query('COMMIT');
  const { rows: read } = await client.query(`SELECT id, repeat('x', 1000) FROM ${table}`);
  expect(read).toHaveLength(5000);
  await client.end();
  await until(() => proxy.connected === 0, { what: 'the proxy to see the client leave' });
});

describe.each(Object.entries(ways))('COMMIT sent %s', (_, send) => {
  test('whose answer is swallowed is done, and the client hears a broken connection', async () => {
    const fault = proxy.swallowCommitReply();
    await client.query('BEGIN');
    await client.query(`INSERT INTO ${table} VALUES ($1)`, [1]);
    await expect(send('COMMIT')).rejects.toThrow(/ECONNRESET|Connection terminated/);
    expect(await fault.hit).toEqual({ statement: 'COMMIT', answer: 'COMMIT' });
    expect(await rows()).toEqual([1]);
  });

  test('after the connection was cut never reaches the server', async () => {
    const fault = proxy.cutBeforeCommit();
    await client.query('BEGIN');
    await client.query(`INSERT INTO ${table} VALUES ($1)`, [1]);
    await expect(send('COMMIT')).rejects.toThrow(/ECONNRESET|Connection terminated/);
    expect(fault.hits).toBe(1);
    await until(async () => (await sessions()) === 0, { what: 'the server to end the session' });
    expect(await rows()).toEqual([]);
  });

  test('and answered with an error rolls the transaction back and leaves the connection of use', async () => {
    const fault = proxy.answerWithError('COMMIT', { code: '53100', message: 'could not extend file: disk full' });
    await client.query('BEGIN');
    await client.query(`INSERT INTO ${table} VALUES ($1)`, [1]);
    await expect(send('COMMIT')).rejects.toMatchObject({ code: '53100', severity: 'ERROR' });
    expect(fault.hits).toBe(1);
    await client.query(`INSERT INTO ${table} VALUES ($1)`, [2]);
    expect(await rows()).toEqual([2]);
    await client.end();
  });
});

/** Sessions other than the pool's. */
async function sessions(): Promise<number> {
  const sql = `SELECT count(*)::int AS n FROM pg_stat_activity WHERE backend_type = 'client backend' AND query LIKE '%${table}%' AND pid <> pg_backend_pid() AND state <> 'idle'`;
  const result = await direct.query<{ n: number }>(sql);
  return result.rows[0]?.n ?? 0;
}

test('a named COMMIT parsed once is known again when only its name is sent', async () => {
  const commit = () => client.query({ name: 'commit', text: 'COMMIT' });
  await client.query('BEGIN');
  await commit();
  const fault = proxy.swallowCommitReply();
  await client.query('BEGIN');
  await client.query(`INSERT INTO ${table} VALUES (1)`);
  await expect(commit()).rejects.toThrow(/ECONNRESET|Connection terminated/);
  expect(fault.hits).toBe(1);
  expect(await rows()).toEqual([1]);
});

test('a fault is for one connection: the others commit', async () => {
  const other = await connected();
  const fault = proxy.cutBeforeCommit();
  await Promise.allSettled([client.query('COMMIT'), other.query('COMMIT')]);
  const third = await connected();
  await third.query(`BEGIN; INSERT INTO ${table} VALUES (7); COMMIT`);
  expect(fault.hits).toBe(1);
  expect(await rows()).toEqual([7]);
  await Promise.all([other.end(), third.end()]);
});

test('answers to what a client sent ahead of COMMIT still arrive', async () => {
  const pipelining = new pg.Client({ connectionString: proxy.url, pipeline: true } as pg.ClientConfig);
  pipelining.on('error', () => undefined);
  await pipelining.connect();
  const fault = proxy.swallowCommitReply();
  const outcomes = await Promise.allSettled([
    pipelining.query('BEGIN'),
    pipelining.query(`INSERT INTO ${table} VALUES ($1) RETURNING id`, [1]),
    pipelining.query('COMMIT'),
  ]);
  expect(outcomes.map(({ status }) => status)).toEqual(['fulfilled', 'fulfilled', 'rejected']);
  expect(fault.hits).toBe(1);
  expect(await rows()).toEqual([1]);
});

test('the swallowed answer of a transaction that had failed is told as ROLLBACK', async () => {
  const fault = proxy.swallowCommitReply();
  await client.query('BEGIN');
  await expect(client.query('SELECT 1 / 0')).rejects.toMatchObject({ code: '22012' });
  await expect(client.query('COMMIT')).rejects.toThrow();
  expect(await fault.hit).toEqual({ statement: 'COMMIT', answer: 'ROLLBACK' });
});

describe('a statement answered with an error', () => {
  test.each(Object.entries(ways))('sent %s is not run and fails its transaction', async (_, send) => {
    const fault = proxy.answerWithError(/^INSERT/, { code: '53100', message: 'disk full' });
    await client.query('BEGIN');
    await expect(send(`INSERT INTO ${table} VALUES (1)`)).rejects.toMatchObject({
      code: '53100',
      message: 'disk full',
    });
    await expect(client.query('SELECT 1')).rejects.toMatchObject({ code: '25P02' });
    await client.query('ROLLBACK');
    await send(`INSERT INTO ${table} VALUES (2)`);
    expect(await rows()).toEqual([2]);
    expect(fault.hits).toBe(1);
    await client.end();
  });

  test('of severity FATAL ends the connection', async () => {
    proxy.answerWithError('INSERT', { code: '57P01', message: 'terminating connection', severity: 'FATAL' });
    await expect(client.query(`INSERT INTO ${table} VALUES (1)`)).rejects.toMatchObject({ code: '57P01' });
    await until(() => clientError, { what: 'the client to see the connection end' });
    expect(await rows()).toEqual([]);
  });
});

describe('the network', () => {
  test('reset breaks open connections and takes new ones', async () => {
    const running = expect(client.query('SELECT pg_sleep(60)')).rejects.toThrow(/ECONNRESET|Connection terminated/);
    await until(async () => proxy.connected === 1, { what: 'the connection' });
    proxy.reset();
    await running;
    await (await connected()).end();
  });

  test('refuse turns new connections away, leaves open ones, and accept ends it', async () => {
    proxy.refuse();
    await expect(connected()).rejects.toThrow('ECONNREFUSED');
    await client.query('SELECT 1');
    await proxy.accept();
    await (await connected()).end();
    await client.end();
  });

  test.each(['toServer', 'toClient', 'both'] as const)(
    'a black hole %s holds everything until it is healed',
    async (direction) => {
      proxy.blackhole(direction);
      let answered = false;
      const query = client.query(`INSERT INTO ${table} VALUES (1)`).then(() => (answered = true));
      if (direction === 'toClient') await until(async () => (await rows()).length === 1, { what: 'the row' });
      else await quietlyAlive(100);
      expect(answered).toBe(false);
      await proxy.heal();
      await query;
      await client.end();
    },
  );

  test('behind a black hole the server does not learn that its client has gone', async () => {
    await client.query('BEGIN');
    await client.query(`INSERT INTO ${table} VALUES (1)`);
    proxy.blackhole();
    (client as unknown as { connection: { stream: { destroy(): void } } }).connection.stream.destroy();
    await quietlyAlive(100);
    expect(await sessions()).toBe(1);
    await proxy.heal();
    await until(async () => (await sessions()) === 0, { what: 'the server to end the session' });
  });

  test('a delay makes an answer late by both ways', async () => {
    proxy.delay(100, 50);
    const start = performance.now();
    await client.query('SELECT 1');
    expect(performance.now() - start).toBeGreaterThanOrEqual(195);
    await client.end();
  });

  test('a throttled connection carries what it is told and no more', async () => {
    proxy.throttle(20_000);
    const start = performance.now();
    await client.query(`SELECT repeat('x', 10000)`);
    expect(performance.now() - start).toBeGreaterThanOrEqual(400);
    await proxy.heal();
    await client.end();
  });

  test('cutAfter cuts in the middle of an answer', async () => {
    const cut = proxy.cutAfter(5_000);
    await expect(client.query(`SELECT repeat('x', 10000)`)).rejects.toThrow(/ECONNRESET|Connection terminated/);
    await cut.hit;
    await (await connected()).end();
  });
});

/** Nothing is to happen here, so there is nothing to wait for: many turns of a working server in between. */
async function quietlyAlive(turns: number): Promise<void> {
  for (let turn = 0; turn < turns; turn++) await direct.query('SELECT 1');
}

test('many connections at once, split into small chunks, all get their own answers', async () => {
  proxy.delay(1, 3);
  const pool = new pg.Pool({ connectionString: proxy.url, max: 8 });
  const values = Array.from({ length: 200 }, (_, index) => index);
  const answers = await Promise.all(values.map((value) => pool.query('SELECT $1::int AS value', [value])));
  expect(answers.map(({ rows: [row] }) => row.value)).toEqual(values);
  await pool.end();
  await client.end();
});
