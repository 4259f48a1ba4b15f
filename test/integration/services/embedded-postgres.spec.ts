import { readFile } from 'node:fs/promises';
import pg from 'pg';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { processEntry } from '../../services/process-table.js';
import { treeOf } from '../../services/process-tree.js';
import { startEmbeddedPostgres, type EmbeddedPostgresServer } from '../../services/services.js';
import { until } from 'nestjs-kafka-idempotency/testing';

let postgres: EmbeddedPostgresServer;

beforeAll(async () => {
  postgres = await startEmbeddedPostgres({ settings: { wal_writer_delay: '17ms', log_statement: 'all' } });
  await query('CREATE TABLE kept (id int)');
});

afterAll(() => postgres.close());

async function query<R extends pg.QueryResultRow>(sql: string): Promise<R[]> {
  const client = new pg.Client({ connectionString: postgres.databaseUrl });
  await client.connect();
  try {
    return (await client.query<R>(sql)).rows;
  } finally {
    await client.end();
  }
}

test('the server writes for real (fsync) and takes the settings it is given', async () => {
  expect(await query('SHOW fsync')).toEqual([{ fsync: 'on' }]);
  expect(await query('SHOW wal_writer_delay')).toEqual([{ wal_writer_delay: '17ms' }]);
});

test('the log of the server can be read', async () => {
  await query("SELECT 'find me'");
  await until(async () => (await readFile(postgres.logFile, 'utf8')).includes("SELECT 'find me'"), {
    what: 'the statement',
  });
});

describe.each([
  ['a fast stop', () => postgres.stop('fast')],
  ['an immediate stop', () => postgres.stop('immediate')],
  ['a kill', () => postgres.kill()],
])('after %s', (name, end) => {
  test('a start brings back the same data on the same port', async () => {
    const { databaseUrl } = postgres;
    await query(`CREATE TABLE "${name}" (id int)`);
    await end();
    expect(postgres.isRunning).toBe(false);
    await expect(query('SELECT 1')).rejects.toThrow('ECONNREFUSED');
    await postgres.start();
    expect(postgres.databaseUrl).toBe(databaseUrl);
    expect(await query(`SELECT count(*)::int AS n FROM "${name}"`)).toEqual([{ n: 0 }]);
  });
});

test('a kill takes the backends, too, even frozen ones', async () => {
  const client = new pg.Client({ connectionString: postgres.databaseUrl });
  client.on('error', () => undefined);
  await client.connect();
  const busy = expect(client.query('SELECT pg_sleep(600)')).rejects.toThrow();
  const pids = treeOf(postgres.pid as number);
  expect(pids.length).toBeGreaterThan(1);
  postgres.pause();
  await postgres.kill();
  expect(pids.filter((pid) => processEntry(pid))).toEqual([]);
  await busy;
  await postgres.start();
});

test('a paused server keeps its connections and answers once it is resumed', async () => {
  const client = new pg.Client({ connectionString: postgres.databaseUrl });
  await client.connect();
  postgres.pause();
  let answered = false;
  const answer = client.query('SELECT 1').then(() => (answered = true));
  await until(() => treeOf(postgres.pid as number).every(isStopped), { what: 'every backend to stop' });
  expect(answered).toBe(false);
  postgres.resume();
  await answer;
  await client.end();
});

function isStopped(pid: number): boolean {
  return processEntry(pid)?.isStopped === true;
}

test('two calls of start give one server', async () => {
  await postgres.stop();
  await Promise.all([postgres.start(), postgres.start()]);
  await query('SELECT 1');
});
