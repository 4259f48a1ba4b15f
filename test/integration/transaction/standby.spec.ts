import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, it } from 'vitest';
import { startEmbeddedPostgres, type EmbeddedPostgresServer } from '../../services/services.js';
import { cancelWait, waitForStandby, waitNoMore } from './standby.js';
import { rejection, useWorld, versions } from './database.js';

// Its commits wait for a standby that there is not.
let server: EmbeddedPostgresServer;
beforeAll(async () => {
  server = await startEmbeddedPostgres();
});
afterAll(() => server.close());

const TOLD = { name: 'unreplicated', detail: 'canceling wait for synchronous replication due to user request' };

describe.each(versions)('a synchronous standby, %s', (_name, orm) => {
  const database = {
    get url() {
      return server.databaseUrl;
    },
  };
  const world = useWorld(orm, database);
  const told: string[] = [];

  beforeEach(async () => {
    told.length = 0;
    await world.scope.watchServer({ restarted: () => {}, unreplicated: (detail) => told.push(detail) });
    await Promise.all([1, 2, 3, 4].map(() => world.dataSource.query('SELECT 1'))); // the pool is full: of connections made before
    await waitForStandby(world.other);
  });

  afterEach(() => waitNoMore(world.other));

  it('F24 a COMMIT whose wait for it is cancelled counts, and is told before it is answered', async () => {
    const transaction = await world.open('e1');
    await transaction.within(() => world.effects.save({ name: 'a' }));
    const seen = transaction.commit().then(() => told.length);
    await cancelWait(world.other, 'COMMIT');
    expect(await seen).toBe(1);
    expect(world.events).toEqual([TOLD]);
    expect(told).toEqual([TOLD.detail]);
    expect(await world.effectNames()).toEqual(['a']);
    expect(await world.claimIds()).toEqual(['e1']);
  });

  it('F24 so is a statement of our own outside a transaction', async () => {
    const written = world.dataSource.query(`INSERT INTO effect (name) VALUES ('a')`);
    await cancelWait(world.other, 'INSERT');
    await written;
    expect(world.events).toEqual([TOLD]);
  });

  it('F24 a barrier that got no answer from it is none', async () => {
    const barrier = rejection(world.scope.barrier());
    await cancelWait(world.other, 'SELECT set_config');
    expect(await barrier).toMatchObject({ code: 'COMMIT_UNREPLICATED', retryable: true });
    await waitNoMore(world.other);
    await world.scope.barrier();
  });

  it('other warnings are none', async () => {
    await world.dataSource.query(`DO $$ BEGIN RAISE WARNING 'canceling wait for synchronous replication'; END $$`);
    expect(world.events).toEqual([]);
  });
});
