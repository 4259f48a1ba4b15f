import { randomBytes } from 'node:crypto';
import type { DataSource, DataSourceOptions, Repository } from 'typeorm';
import { afterAll, afterEach, beforeAll, beforeEach } from 'vitest';
import type { IdempotencyEvent } from '#src/shared/events.js';
import type { OpenTransaction } from '#src/transaction/open-transaction.js';
import { TransactionScope } from '#src/transaction/transaction-scope.js';
import { startEmbeddedPostgres } from '../../services/services.js';
import { CLAIM, CLAIM_TABLE, effectEntity, forgetDecorators } from './fixtures.js';
import type { Orm } from './typeorm-versions.js';

export { versions, type Orm } from './typeorm-versions.js';

/** The server of DATABASE_URL, or one of its own for this file. */
export function useDatabase(): { readonly url: string } {
  const state = { url: '', stop: () => Promise.resolve() };
  beforeAll(async () => {
    if (process.env.DATABASE_URL) state.url = process.env.DATABASE_URL;
    else {
      const server = await startEmbeddedPostgres();
      Object.assign(state, { url: server.databaseUrl, stop: () => server.close() });
    }
  });
  afterAll(() => state.stop());
  return state;
}

export interface World {
  readonly orm: Orm;
  readonly dataSource: DataSource;
  readonly scope: TransactionScope;
  readonly schema: string;
  readonly events: IdempotencyEvent[];
  readonly effects: Repository<{ id: number; name: string }>;
  /** A second pool, without any scope: how others see the database. */
  readonly other: DataSource;
  open(eventId?: string, change?: Partial<Parameters<TransactionScope['open']>[0]>): Promise<OpenTransaction>;
  effectNames(): Promise<string[]>;
  claimIds(): Promise<string[]>;
}

export interface WorldOptions {
  readonly entities?: (orm: Orm) => DataSourceOptions['entities'];
  readonly subscribers?: (orm: Orm) => NonNullable<DataSourceOptions['subscribers']>;
  readonly poolSize?: number;
  readonly extra?: Record<string, unknown>;
  readonly preparedStatements?: boolean;
  readonly url?: () => string;
}

/** A fresh schema, DataSource and installed scope for each test, and everything given back after it. */
export function useWorld(orm: Orm, database: { readonly url: string }, options: WorldOptions = {}): World {
  const world = {} as { -readonly [K in keyof World]: World[K] };
  beforeEach(async () => {
    await makeWorld(world, orm, options.url?.() ?? database.url, options);
  });
  afterEach(async () => {
    world.scope.uninstall();
    if (world.dataSource.isInitialized) await world.dataSource.destroy();
    await world.other.query(`DROP SCHEMA "${world.schema}" CASCADE`);
    await world.other.destroy();
  });
  return world;
}

async function makeWorld(
  world: { -readonly [K in keyof World]: World[K] },
  orm: Orm,
  url: string,
  options: WorldOptions,
): Promise<void> {
  forgetDecorators();
  const schema = `tx_${randomBytes(6).toString('hex')}`;
  const Effect = effectEntity(orm);
  const common = { type: 'postgres', url, schema, installExtensions: false } as const;
  const session = { options: `-c search_path=${schema}`, ...options.extra };
  const other = await new orm.DataSource({
    ...common,
    poolSize: 3,
    extra: { ...session, application_name: `${schema}-other` },
  }).initialize();
  await other.query(`CREATE SCHEMA "${schema}"`);
  await other.query(CLAIM_TABLE);
  const dataSource = await new orm.DataSource({
    ...common,
    poolSize: options.poolSize ?? 4,
    extra: { ...session, application_name: schema },
    synchronize: true,
    entities: [Effect, ...((options.entities?.(orm) ?? []) as never[])],
    subscribers: (options.subscribers?.(orm) ?? []) as never[],
  }).initialize();
  const events: IdempotencyEvent[] = [];
  const scope = new TransactionScope(dataSource, {
    preparedStatements: options.preparedStatements ?? true,
    emit: (event) => events.push(event),
  });
  scope.install();
  Object.assign(world, {
    orm,
    dataSource,
    scope,
    schema,
    events,
    other,
    effects: dataSource.getRepository(Effect),
    open: (eventId = 'e1', change = {}) =>
      scope.open({
        owner: `consumer 'test', orders-0@${eventId}`,
        isolation: 'READ COMMITTED',
        claim: { ...CLAIM, values: ['test', eventId] },
        ...change,
      }),
    effectNames: async () => names(await other.query(`SELECT name FROM effect ORDER BY name`)),
    claimIds: async () => names(await other.query(`SELECT event_id AS name FROM claims ORDER BY event_id`)),
  } satisfies Partial<World>);
}

function names(rows: { name: string }[]): string[] {
  return rows.map((row) => row.name);
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

/** A gate for tests that let two pieces of work meet. */
export function latch(): { readonly opened: Promise<void>; readonly open: () => void } {
  let open = (): void => undefined;
  const opened = new Promise<void>((resolve) => (open = resolve));
  return { opened, open };
}
