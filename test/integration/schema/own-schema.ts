import { randomBytes } from 'node:crypto';
import * as orm1 from 'typeorm';
import type { DataSource, DataSourceOptions, QueryRunner } from 'typeorm';
import * as orm03 from 'typeorm-03';
import { afterAll, afterEach, beforeAll, beforeEach } from 'vitest';
import { idempotencyEntities, idempotencyMigrations } from '#src/schema/index.js';
import { startEmbeddedPostgres } from '../../services/services.js';

export type Orm = typeof orm1;

/** Both TypeORM majors, the same code on each. */
export const versions: [name: string, orm: Orm][] = [
  ['TypeORM 1.x', orm1],
  ['TypeORM 0.3', orm03 as unknown as Orm],
];

/** The server of DATABASE_URL, or one of its own for this file. */
export function useDatabase(): { readonly url: string } {
  const state = { url: '', stop: () => Promise.resolve() };
  beforeAll(async () => {
    if (process.env['DATABASE_URL']) state.url = process.env['DATABASE_URL'];
    else {
      const server = await startEmbeddedPostgres();
      Object.assign(state, { url: server.databaseUrl, stop: () => server.close() });
    }
  });
  afterAll(() => state.stop());
  return state;
}

export interface OwnSchema {
  readonly name: string;
  /** Set up with our migrations and entities, the former not run yet. */
  readonly dataSource: DataSource;
  /** Another DataSource on the same schema, closed after the test. */
  connect(options?: Partial<DataSourceOptions>): Promise<DataSource>;
  /** A runner of its own connection, given back after the test. */
  session(): Promise<QueryRunner>;
}

/** A fresh schema, the first of the search_path, for each test. It and everything opened on it is gone after the test. */
export function useSchema(database: { readonly url: string }, orm: Orm = orm1): OwnSchema {
  const own = {} as { -readonly [K in keyof OwnSchema]: OwnSchema[K] };
  const opened: DataSource[] = [];
  const sessions: QueryRunner[] = [];

  beforeEach(async () => {
    const name = `inbox_${randomBytes(6).toString('hex')}`;
    own.name = name;
    own.connect = async (options = {}) => {
      const dataSource = new orm.DataSource({
        type: 'postgres',
        url: database.url,
        installExtensions: false,
        entities: [...idempotencyEntities],
        migrations: [...idempotencyMigrations()],
        extra: { options: `-c search_path=${name}` },
        ...options,
      } as DataSourceOptions);
      opened.push(await dataSource.initialize());
      return dataSource;
    };
    own.session = async () => {
      const runner = own.dataSource.createQueryRunner();
      sessions.push(runner);
      await runner.connect();
      return runner;
    };
    own.dataSource = await own.connect();
    await own.dataSource.query(`CREATE SCHEMA "${name}"`);
  });

  afterEach(async () => {
    for (const runner of sessions.splice(0)) await runner.release();
    await own.dataSource.query(`DROP SCHEMA IF EXISTS "${own.name}" CASCADE`);
    for (const dataSource of opened.splice(0).reverse()) await dataSource.destroy();
  });
  return own;
}

/** What a promise rejected with; a promise that resolves is a failure. */
export async function rejection(promise: Promise<unknown>): Promise<Error & { code?: string }> {
  const settled = await promise.then(
    (value) => ({ value }),
    (error: Error) => ({ error }),
  );
  if ('error' in settled) return settled.error;
  throw new Error(`Expected a rejection, got ${JSON.stringify(settled.value)}`);
}
