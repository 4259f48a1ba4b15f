import type { DataSource } from 'typeorm';
import { Gate } from './handlers.js';
import type { World } from './world.js';

// What the specs of shared transactions, of keys in them and of batches have in common.

export const TWICE = { attempts: 2, delay: 10, factor: 1, jitter: 'none' } as const;

export const ids = (count: number, from = 0) => Array.from({ length: count }, (_, at) => `e${from + at}`);

/** How many transactions wrote the effects. */
export async function transactions(world: World): Promise<number> {
  const [row] = await world.db.query<{ count: number }[]>(
    'SELECT count(DISTINCT xmin::text)::integer AS count FROM effects',
  );
  return row!.count;
}

/** The claim of that event, as another live copy would make it. */
export const claimOf = (id: string) =>
  `INSERT INTO processed_events (consumer, event_id, topic, partition, record_offset, fingerprint) VALUES ('test', '${id}', 'x', 0, 0, 0)`;

export const everything = (world: World) => Promise.all([world.effects(), world.processed()]);

/** A row of `references_one` names a row of `one` that must be there at COMMIT. */
export async function withDeferredKey(world: World): Promise<void> {
  await world.db.query('CREATE TABLE one (id text PRIMARY KEY)');
  await world.db.query(
    'CREATE TABLE references_one (id text REFERENCES one (id) DEFERRABLE INITIALLY DEFERRED, event_id text NOT NULL)',
  );
}

/** What a handler may do wrong at one event, and the code that this event is parked with. */
export const wrongs: Record<string, { code: string; does: (dataSource: DataSource) => unknown }> = {
  'leaves a query un-awaited': {
    code: 'QUERY_IN_FLIGHT',
    // Long enough to be running still when the handler has ended.
    does: (dataSource) => void dataSource.query('SELECT pg_sleep(0.2)').catch(() => undefined),
  },
  'commits by hand': {
    code: 'HAND_MADE_COMMIT',
    does: (dataSource) => dataSource.query('COMMIT').catch(() => undefined),
  },
  'catches an SQL error and goes on': {
    code: 'TRANSACTION_ABORTED',
    does: (dataSource) => dataSource.query('SELECT 1 / 0').catch(() => undefined),
  },
  'does not end before its timeout': { code: 'HANDLER_TIMEOUT', does: () => new Gate().passed },
};
