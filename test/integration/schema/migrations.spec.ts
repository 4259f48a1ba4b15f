import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { claimStatement, claimValues } from '#src/inbox/claim.js';
import { idempotencyMigrations, ParkedEventEntity, ProcessedEventEntity } from '#src/schema/index.js';
import { packageRoot } from '../../services/package-root.js';
import { catalogOf, tablesIn } from './catalog-of.js';
import { rejection, useDatabase, useSchema, versions } from './own-schema.js';

const database = useDatabase();
const OUTBOX = ['outbox_dedupe', 'outbox_messages', 'outbox_shards'];
const OURS = [...OUTBOX, 'parked_events', 'processed_events', 'running_records'];
const LISTED = ['outbox_dedupe', 'outbox_events', 'outbox_messages', 'outbox_shards', ...OURS.slice(3)];

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

  it('make parked_events known by where the record stood, so that it is not parked twice', async () => {
    await own.dataSource.runMigrations();
    const { constraints, indexes, comment } = await catalogOf(own.dataSource, own.name, 'parked_events');
    expect(constraints).toEqual([
      'parked_events_consumer_topic_partition_record_offset_record_key: UNIQUE (consumer, topic, partition, record_offset, record_timestamp)',
      'parked_events_pkey: PRIMARY KEY (id)',
      "parked_events_state_check: CHECK ((state = ANY (ARRAY['scheduled'::text, 'dead'::text, 'held'::text, 'discarded'::text])))",
    ]);
    expect(indexes.filter((index) => !index.includes('UNIQUE'))).toEqual([
      "CREATE INDEX parked_events_due ON parked_events USING btree (due_at) WHERE (state = 'scheduled'::text)",
      'CREATE INDEX parked_events_hold ON parked_events USING btree (consumer, topic, hold_key, record_offset) WHERE (hold_key IS NOT NULL)',
      'CREATE INDEX parked_events_origin ON parked_events USING btree (group_id, topic, partition)',
    ]);
    expect(comment).toBe('nestjs-kafka-idempotency schema 1');
  });

  it('make the outbox: ids one at a time, 16 shards, and the view that Debezium reads', async () => {
    await own.dataSource.runMigrations();
    const { indexes, comment } = await catalogOf(own.dataSource, own.name, 'outbox_messages');
    expect(indexes.filter((index) => !index.includes('UNIQUE'))).toEqual([
      "CREATE INDEX outbox_messages_pending ON outbox_messages USING btree (shard, id) WHERE (state = 'pending'::text)",
    ]);
    expect(comment).toBe('nestjs-kafka-idempotency schema 1');
    const query = (sql: string) => own.dataSource.query<Record<string, unknown>[]>(sql);
    expect(
      await query(
        `SELECT cache_size::integer AS cache FROM pg_sequences WHERE schemaname = '${own.name}' AND sequencename = 'outbox_messages_id_seq'`,
      ),
    ).toEqual([{ cache: 1 }]);
    expect(
      await query('SELECT count(*)::integer AS n, min(shard) AS low, max(shard) AS high FROM outbox_shards'),
    ).toEqual([{ n: 16, low: 0, high: 15 }]);
    await query(
      `INSERT INTO outbox_messages (shard, event_id, topic, message_key, message_value, header_names, header_values) VALUES (3, 'e1', 'orders', 'k', '{}', '{}', '{}')`,
    );
    expect(await query('SELECT id, aggregatetype, aggregateid, type, payload FROM outbox_events')).toEqual([
      { id: 'e1', aggregatetype: 'orders', aggregateid: Buffer.from('k'), type: 'orders', payload: Buffer.from('{}') },
    ]);
  });

  it('make the same catalog as the SQL files', async () => {
    await own.dataSource.runMigrations();
    const catalogs = () => Promise.all(OURS.map((table) => catalogOf(own.dataSource, own.name, table)));
    const migrated = await catalogs();
    await own.dataSource.query('DROP VIEW outbox_events');
    await own.dataSource.query(`DROP TABLE ${OURS.join(', ')}`);
    for (const file of ['sql/0001-processed-events.sql', 'sql/0002-parked-events.sql', 'sql/0003-outbox.sql'])
      await own.dataSource.query(await readFile(join(packageRoot(), file), 'utf8'));
    expect(await catalogs()).toEqual(migrated);
  });

  it('run once', async () => {
    expect(await own.dataSource.runMigrations()).toHaveLength(3);
    expect(await own.dataSource.runMigrations()).toHaveLength(0);
  });

  it('drop our tables only', async () => {
    await own.dataSource.query('CREATE TABLE orders (id integer PRIMARY KEY)');
    await own.dataSource.runMigrations();
    expect(await tables()).toEqual(['migrations', 'orders', ...LISTED].toSorted());
    await own.dataSource.undoLastMigration();
    expect(await tables()).toEqual(['migrations', 'orders', 'parked_events', 'processed_events', 'running_records']);
    await own.dataSource.undoLastMigration();
    expect(await tables()).toEqual(['migrations', 'orders', 'processed_events']);
    await own.dataSource.undoLastMigration();
    expect(await tables()).toEqual(['migrations', 'orders']);
  });

  it('do not take what depends on our tables with them', async () => {
    await own.dataSource.runMigrations();
    await own.dataSource.query('CREATE VIEW handled AS SELECT topic FROM outbox_dedupe');
    await rejection(own.dataSource.undoLastMigration());
    expect(await tables()).toEqual(['handled', 'migrations', ...LISTED]);
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
    expect(await tables()).toEqual(['migrations', ...LISTED]);
    await named.undoLastMigration();
    await named.undoLastMigration();
    await named.undoLastMigration();
    expect(await tables()).toEqual(['migrations']);
  });

  it("make the table in the DataSource's schema, where the entities look for it", async () => {
    const named = await own.connect({ extra: {}, schema: own.name });
    await named.runMigrations();
    expect(await tables()).toEqual(['migrations', ...LISTED]);
    expect(await named.getRepository(ProcessedEventEntity).count()).toBe(0);
    expect(await named.getRepository(ParkedEventEntity).count()).toBe(0);
  });

  it('leave synchronize and migration:generate nothing to change', async () => {
    await own.dataSource.runMigrations();
    const catalogs = () => Promise.all(OURS.map((table) => catalogOf(own.dataSource, own.name, table)));
    const before = await catalogs();
    const fresh = await own.connect(); // a DataSource reads current_schema() when it connects
    const generated = await fresh.driver.createSchemaBuilder().log();
    expect(generated.upQueries.map(({ query }) => query)).toEqual([]);
    await fresh.synchronize();
    expect(await catalogs()).toEqual(before);
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

  it('make a table whose parked events the entity reads', async () => {
    await own.dataSource.runMigrations();
    await own.dataSource.query(
      `INSERT INTO parked_events (state, consumer, group_id, topic, partition, record_offset, record_timestamp, record_key, header_names, header_values, reason)
       VALUES ('dead', 'billing.charge', 'billing', 'orders', 3, 9223372036854775807, now(), '\\xff00', '{a,"b c"}', $1, 'permanent')`,
      [[Buffer.from('ff', 'hex'), null]],
    );
    const row = await own.dataSource.getRepository(ParkedEventEntity).findOneByOrFail({ state: 'dead' });
    expect(row).toMatchObject({
      recordOffset: '9223372036854775807',
      recordKey: Buffer.from('ff00', 'hex'),
      recordValue: null,
      headerNames: ['a', 'b c'],
      headerValues: [Buffer.from('ff', 'hex'), null],
      history: [],
      version: 1,
    });
    expect(row.parkedAt).toBeInstanceOf(Date);
  });
});
