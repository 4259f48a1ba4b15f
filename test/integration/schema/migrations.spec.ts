import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { claimStatement, claimValues } from '#src/inbox/claim.js';
import { idempotencyMigrations, ProcessedEventEntity } from '#src/schema/index.js';
import { packageRoot } from '../../services/package-root.js';
import { catalogOf, tablesIn } from './catalog-of.js';
import { rejection, useDatabase, useSchema, versions } from './own-schema.js';

const database = useDatabase();

describe.each(versions)('the migrations on %s', (_, orm) => {
  const own = useSchema(database, orm);
  const tables = () => tablesIn(own.dataSource, own.name);

  it('make processed_events with the documented columns in their order, keys, index and comment', async () => {
    await own.dataSource.runMigrations();
    expect(await catalogOf(own.dataSource, own.name, 'processed_events')).toEqual({
      columns: [
        'processed_at timestamp with time zone NOT NULL DEFAULT now()',
        'record_offset bigint NOT NULL',
        'fingerprint bigint NOT NULL',
        'partition integer NOT NULL',
        'consumer text COLLATE "C" NOT NULL',
        'event_id text COLLATE "C" NOT NULL',
        'topic text COLLATE "C" NOT NULL',
      ],
      constraints: ['processed_events_pkey: PRIMARY KEY (consumer, event_id)'],
      indexes: [
        `CREATE INDEX processed_events_processed_at ON processed_events USING brin (processed_at) WITH (autosummarize='on')`,
        'CREATE UNIQUE INDEX processed_events_pkey ON processed_events USING btree (consumer, event_id)',
      ],
      comment: 'nestjs-kafka-idempotency schema 1',
    });
  });

  it('make the same catalog as the SQL file', async () => {
    await own.dataSource.runMigrations();
    const migrated = await catalogOf(own.dataSource, own.name, 'processed_events');
    await own.dataSource.query('DROP TABLE processed_events');
    await own.dataSource.query(await readFile(join(packageRoot(), 'sql/0001-processed-events.sql'), 'utf8'));
    expect(await catalogOf(own.dataSource, own.name, 'processed_events')).toEqual(migrated);
  });

  it('run once', async () => {
    expect(await own.dataSource.runMigrations()).toHaveLength(1);
    expect(await own.dataSource.runMigrations()).toHaveLength(0);
  });

  it('drop our table only', async () => {
    await own.dataSource.query('CREATE TABLE orders (id integer PRIMARY KEY)');
    await own.dataSource.runMigrations();
    expect(await tables()).toEqual(['migrations', 'orders', 'processed_events']);
    await own.dataSource.undoLastMigration();
    expect(await tables()).toEqual(['migrations', 'orders']);
  });

  it('do not take what depends on our table with them', async () => {
    await own.dataSource.runMigrations();
    await own.dataSource.query('CREATE VIEW handled AS SELECT topic FROM processed_events');
    await rejection(own.dataSource.undoLastMigration());
    expect(await tables()).toEqual(['handled', 'migrations', 'processed_events']);
  });

  it('leave a table of that name that was there before alone', async () => {
    await own.dataSource.query('CREATE TABLE processed_events (mine text)');
    await rejection(own.dataSource.runMigrations());
    expect((await catalogOf(own.dataSource, own.name, 'processed_events')).columns).toEqual(['mine text']);
  });

  it('make the table in the schema they are given, whatever the search_path', async () => {
    const named = await own.connect({
      migrations: [...idempotencyMigrations({ schema: own.name })],
      extra: { options: '-c search_path=pg_catalog' },
      schema: own.name,
    });
    await named.runMigrations();
    expect(await tables()).toEqual(['migrations', 'processed_events']);
    await named.undoLastMigration();
    expect(await tables()).toEqual(['migrations']);
  });

  it("make the table in the DataSource's schema, where the entities look for it", async () => {
    const named = await own.connect({ extra: {}, schema: own.name });
    await named.runMigrations();
    expect(await tables()).toEqual(['migrations', 'processed_events']);
    expect(await named.getRepository(ProcessedEventEntity).count()).toBe(0);
  });

  it('leave synchronize and migration:generate nothing to change', async () => {
    await own.dataSource.runMigrations();
    const before = await catalogOf(own.dataSource, own.name, 'processed_events');
    const fresh = await own.connect(); // a DataSource reads current_schema() when it connects
    const generated = await fresh.driver.createSchemaBuilder().log();
    expect(generated.upQueries.map(({ query }) => query)).toEqual([]);
    await fresh.synchronize();
    expect(await catalogOf(own.dataSource, own.name, 'processed_events')).toEqual(before);
  });

  it('make a table whose claims the entity reads', async () => {
    await own.dataSource.runMigrations();
    const claim = {
      consumer: 'billing.charge',
      eventId: 'e1',
      topic: 'orders',
      partition: 3,
      offset: '9223372036854775807',
      fingerprint: '-42',
    };
    await own.dataSource.query(claimStatement('processed_events', 2000).text, claimValues(claim));
    const { processedAt, ...row } = await own.dataSource
      .getRepository(ProcessedEventEntity)
      .findOneByOrFail({ eventId: 'e1' });
    expect(processedAt).toBeInstanceOf(Date);
    expect(row).toEqual({
      consumer: 'billing.charge',
      eventId: 'e1',
      topic: 'orders',
      partition: 3,
      recordOffset: '9223372036854775807',
      fingerprint: '-42',
    });
  });
});
