import { describe, expect, it } from 'vitest';
import { checkSchema } from '#src/schema/schema-guard.js';
import { IdempotencyError, type ErrorCode } from '#src/shared/errors.js';
import { rejection, useDatabase, useSchema, versions } from './own-schema.js';

const database = useDatabase();
const own = useSchema(database);

const check = (schema?: string) => checkSchema((sql, parameters) => own.dataSource.query(sql, parameters), { schema });
const broken = async (...statements: string[]) => {
  await own.dataSource.runMigrations();
  for (const statement of statements) await own.dataSource.query(statement);
  return rejection(check());
};

describe('a database that fits', () => {
  it('gives the schema in use, the version and the time-out of idle transactions', async () => {
    await own.dataSource.runMigrations();
    const session = await own.connect({
      extra: { options: `-c search_path=${own.name} -c idle_in_transaction_session_timeout=7s` },
    });
    const facts = await checkSchema((sql, parameters) => session.query(sql, parameters), { schema: undefined });
    expect(facts).toMatchObject({
      schema: own.name,
      currentSchema: own.name,
      searchPath: own.name,
      idleInTransactionTimeoutMs: 7000,
    });
    expect(facts.serverVersion).toBeGreaterThanOrEqual(150000);
  });

  it('gives the schema it is asked for, whatever the search_path', async () => {
    await own.dataSource.runMigrations();
    const elsewhere = await own.connect({ extra: { options: '-c search_path=public' } });
    const facts = await checkSchema((sql, parameters) => elsewhere.query(sql, parameters), { schema: own.name });
    expect(facts).toMatchObject({ schema: own.name, currentSchema: 'public' });
  });

  it('may have more columns, plain indexes and AFTER triggers of its owner', async () => {
    await own.dataSource.runMigrations();
    for (const statement of [
      'ALTER TABLE processed_events ADD COLUMN tenant text',
      `ALTER TABLE processed_events ADD COLUMN region text NOT NULL DEFAULT 'eu'`,
      'ALTER TABLE processed_events ADD COLUMN serial bigint GENERATED ALWAYS AS IDENTITY',
      'CREATE INDEX by_topic ON processed_events (topic)',
      `CREATE FUNCTION nothing() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END'`,
      'CREATE TRIGGER audit AFTER INSERT ON processed_events FOR EACH ROW EXECUTE FUNCTION nothing()',
    ])
      await own.dataSource.query(statement);
    await expect(check()).resolves.toMatchObject({ schema: own.name });
  });

  it('may be read-only at the moment: that is an outage, no fault of the schema', async () => {
    await own.dataSource.runMigrations();
    const session = await own.connect({
      extra: { options: `-c search_path=${own.name} -c default_transaction_read_only=on` },
    });
    await expect(
      checkSchema((sql, parameters) => session.query(sql, parameters), { schema: undefined }),
    ).resolves.toBeDefined();
  });
});

describe('the tables of the outbox', () => {
  const dropAll = async () => {
    await own.dataSource.runMigrations();
    await own.dataSource.query('DROP VIEW outbox_events');
    await own.dataSource.query('DROP TABLE outbox_messages, outbox_shards, outbox_dedupe');
  };

  it('need not be there for those who do not publish', async () => {
    await dropAll();
    expect(await check()).toMatchObject({ hasOutbox: false });
  });

  it('must be there when they are asked for', async () => {
    await dropAll();
    const asked = checkSchema((sql, parameters) => own.dataSource.query(sql, parameters), {
      schema: undefined,
      needsOutbox: true,
    });
    const error = await rejection(asked);
    expect(IdempotencyError.is(error, 'SCHEMA_MISSING')).toBe(true);
    expect(error.message).toContain('outbox_messages" does not exist');
    expect(error.message).toContain('sql/0003-outbox.sql');
  });

  it('are looked at when they are there, all of them', async () => {
    await own.dataSource.runMigrations();
    expect(await check()).toMatchObject({ hasOutbox: true });
    await own.dataSource.query('DROP TABLE outbox_dedupe');
    expect(IdempotencyError.is(await rejection(check()), 'SCHEMA_MISSING')).toBe(true);
  });
});

describe.each(versions)('the query function of a DataSource of %s', (_, orm) => {
  const other = useSchema(database, orm);

  it('serves the check', async () => {
    await other.dataSource.runMigrations();
    await expect(
      checkSchema((sql, parameters) => other.dataSource.query(sql, parameters), { schema: other.name }),
    ).resolves.toMatchObject({ schema: other.name });
  });
});

describe('F52: a missing table', () => {
  it('is named with the schema looked in, the search_path and both remedies', async () => {
    const error = await rejection(check());
    expect(IdempotencyError.is(error, 'SCHEMA_MISSING')).toBe(true);
    expect(error.message).toContain(
      `The table "${own.name}"."processed_events" does not exist (looked in schema "${own.name}"; search_path is ${own.name})`,
    );
    expect(error.message).toContain('idempotencyMigrations()');
    expect(error.message).toContain('migration:run');
    expect(error.message).toContain('sql/0001-processed-events.sql');
  });

  it('that stands in a schema beside the search_path is said to stand there', async () => {
    await own.dataSource.runMigrations();
    await own.dataSource.query(`CREATE SCHEMA "${own.name}_b"`);
    try {
      const error = await rejection(check(`${own.name}_b`));
      expect(IdempotencyError.is(error, 'SCHEMA_MISSING')).toBe(true);
      expect(error.message).toMatch(new RegExp(`stands in schema .*"${own.name}".*option \`schema\``));
    } finally {
      await own.dataSource.query(`DROP SCHEMA "${own.name}_b"`);
    }
  });

  it('is said to lack even its schema', async () => {
    const error = await rejection(check('no_such_schema'));
    expect(IdempotencyError.is(error, 'SCHEMA_MISSING')).toBe(true);
    expect(error.message).toContain(
      'The schema "no_such_schema" of the table "no_such_schema"."processed_events" does not exist',
    );
  });

  it('has nowhere to be when the search_path names no schema that exists', async () => {
    const lost = await own.connect({ extra: { options: '-c search_path=no_such_schema' } });
    const error = await rejection(checkSchema((sql, parameters) => lost.query(sql, parameters), { schema: undefined }));
    expect(IdempotencyError.is(error, 'SCHEMA_MISSING')).toBe(true);
    expect(error.message).toContain('(no_such_schema)');
  });
});

describe('F52: a table that is not the one this version needs', () => {
  it.each([
    [
      'a migration broken off before the comment',
      [`COMMENT ON TABLE processed_events IS NULL`],
      /its comment '.* schema 1' is missing/,
    ],
    [
      'the comment of another version',
      [`COMMENT ON TABLE processed_events IS 'nestjs-kafka-idempotency schema 2'`],
      /is 'nestjs-kafka-idempotency schema 2', not 'nestjs-kafka-idempotency schema 1'/,
    ],
    [
      'a missing index',
      ['DROP INDEX processed_events_processed_at'],
      /index processed_events_processed_at using brin \(processed_at\) is missing/,
    ],
    [
      'an index of another kind',
      [
        'DROP INDEX processed_events_processed_at',
        'CREATE INDEX processed_events_processed_at ON processed_events (topic)',
      ],
      /is btree \(topic\), not brin \(processed_at\)/,
    ],
    ['a missing column', ['ALTER TABLE processed_events DROP COLUMN fingerprint'], /column fingerprint is missing/],
    [
      'a column of another type',
      ['ALTER TABLE processed_events ALTER event_id TYPE varchar(255)'],
      /column event_id is of type character varying\(255\), not text/,
    ],
    [
      'a column with a system collation',
      ['ALTER TABLE processed_events ALTER event_id TYPE text COLLATE "default"'],
      /column event_id has collation "default", not "C"/,
    ],
    [
      'a column that can be null',
      ['ALTER TABLE processed_events ALTER topic DROP NOT NULL'],
      /column topic can be null/,
    ],
    [
      'a missing default',
      ['ALTER TABLE processed_events ALTER processed_at DROP DEFAULT'],
      /column processed_at has default none, not now\(\)/,
    ],
    [
      'a missing primary key',
      ['ALTER TABLE processed_events DROP CONSTRAINT processed_events_pkey'],
      /primary key \(consumer, event_id\) is missing/,
    ],
    [
      'a primary key without the consumer',
      ['ALTER TABLE processed_events DROP CONSTRAINT processed_events_pkey, ADD PRIMARY KEY (event_id)'],
      /primary key is \(event_id\), not \(consumer, event_id\)/,
    ],
    [
      'a deferrable primary key',
      [
        'ALTER TABLE processed_events DROP CONSTRAINT processed_events_pkey, ADD PRIMARY KEY (consumer, event_id) DEFERRABLE',
      ],
      /primary key is deferrable/,
    ],
    [
      'an added unique index, which would swallow new events',
      ['CREATE UNIQUE INDEX once ON processed_events (event_id)'],
      /unique or exclusion index once \(event_id\) .* lost/,
    ],
    [
      'an added unique index on an expression',
      ['CREATE UNIQUE INDEX once ON processed_events (lower(event_id))'],
      /index once \(<expression>\)/,
    ],
    [
      'an added column that no claim fills',
      ['ALTER TABLE processed_events ADD COLUMN tenant text NOT NULL'],
      /added column tenant is NOT NULL/,
    ],
    ['a table that a crash would empty', ['ALTER TABLE processed_events SET UNLOGGED'], /not a permanent table/],
    [
      'a trigger that could drop claims',
      [
        `CREATE FUNCTION nothing() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END'`,
        'CREATE TRIGGER quiet BEFORE INSERT ON processed_events FOR EACH ROW EXECUTE FUNCTION nothing()',
      ],
      /BEFORE INSERT trigger quiet/,
    ],
    [
      'a view',
      ['ALTER TABLE processed_events RENAME TO claims', 'CREATE VIEW processed_events AS SELECT * FROM claims'],
      /it is a view, not a table/,
    ],
    [
      'a table of somebody else',
      ['DROP TABLE processed_events', 'CREATE TABLE processed_events (mine text)'],
      /is missing.*column consumer is missing/,
    ],
  ])('is refused for %s', async (_, statements, fault) => {
    const error = await broken(...statements);
    expect(IdempotencyError.is(error, 'SCHEMA_MISMATCH')).toBe(true);
    expect(error.message).toMatch(fault);
    expect(error.message).toContain(`"${own.name}"."processed_events"`);
    expect(error.message).toContain('sql/0001-processed-events.sql');
  });

  it.each([
    ['the missing table of parked events', ['DROP TABLE parked_events'], 'SCHEMA_MISSING', /no event can be parked/],
    [
      'the missing table of running records',
      ['DROP TABLE running_records'],
      'SCHEMA_MISSING',
      /a record that ends the process cannot be told/,
    ],
    [
      'an added unique index, which would lose events that have to be parked',
      ['CREATE UNIQUE INDEX once ON parked_events (event_id)'],
      'SCHEMA_MISMATCH',
      /index once \(event_id\) would make an event look as if it were parked already, and it would be lost/,
    ],
    [
      'a trigger that could drop parked events',
      [
        `CREATE FUNCTION nothing() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END'`,
        'CREATE TRIGGER quiet BEFORE INSERT ON parked_events FOR EACH ROW EXECUTE FUNCTION nothing()',
      ],
      'SCHEMA_MISMATCH',
      /BEFORE INSERT trigger quiet could .* lost/,
    ],
    [
      'a missing unique constraint, without which an event would be parked twice',
      ['ALTER TABLE parked_events DROP CONSTRAINT parked_events_consumer_topic_partition_record_offset_record_key'],
      'SCHEMA_MISMATCH',
      /unique constraint \(consumer, topic, partition, record_offset, record_timestamp\) is missing/,
    ],
    [
      'a deferrable one, which ON CONFLICT does not see',
      [
        'ALTER TABLE parked_events DROP CONSTRAINT parked_events_consumer_topic_partition_record_offset_record_key',
        'ALTER TABLE parked_events ADD UNIQUE (consumer, topic, partition, record_offset, record_timestamp) DEFERRABLE',
      ],
      'SCHEMA_MISMATCH',
      /unique constraint .* is missing, deferrable or invalid/,
    ],
    [
      'a check that knows other states',
      [
        'ALTER TABLE parked_events DROP CONSTRAINT parked_events_state_check',
        `ALTER TABLE parked_events ADD CONSTRAINT parked_events_state_check CHECK (state IN ('dead'))`,
      ],
      'SCHEMA_MISMATCH',
      /constraint parked_events_state_check is CHECK .*, not CHECK/,
    ],
    [
      'a missing check',
      ['ALTER TABLE parked_events DROP CONSTRAINT parked_events_state_check'],
      'SCHEMA_MISMATCH',
      /constraint parked_events_state_check is missing/,
    ],
    [
      'an id that nothing fills in',
      ['ALTER TABLE parked_events ALTER id DROP IDENTITY'],
      'SCHEMA_MISMATCH',
      /column id has default none, not identity/,
    ],
    [
      'a column that may not be null',
      ['ALTER TABLE parked_events ALTER event_id SET NOT NULL'],
      'SCHEMA_MISMATCH',
      /column event_id cannot be null/,
    ],
    [
      'a partial index that is none',
      ['DROP INDEX parked_events_due', 'CREATE INDEX parked_events_due ON parked_events (due_at)'],
      'SCHEMA_MISMATCH',
      /index parked_events_due is btree \(due_at\), not btree \(due_at\) where \(state = 'scheduled'::text\)/,
    ],
    [
      'a table that a crash would empty',
      ['ALTER TABLE parked_events SET UNLOGGED'],
      'SCHEMA_MISMATCH',
      /every parked event would be lost/,
    ],
  ])('is refused for %s', async (_, statements, code, fault) => {
    const error = await broken(...statements);
    expect(IdempotencyError.is(error, code as ErrorCode)).toBe(true);
    expect(error.message).toMatch(fault);
    expect(error.message).toContain('sql/0002-parked-events.sql');
  });

  it('is told all its faults at once', async () => {
    const error = await broken(
      'DROP INDEX processed_events_processed_at',
      'COMMENT ON TABLE processed_events IS NULL',
      'ALTER TABLE processed_events DROP COLUMN topic',
    );
    expect(error.message).toMatch(/comment.*column topic.*index/);
  });
});

describe('S14: a role without the privileges', () => {
  it('is told the GRANTs that make the start succeed, and needs no others', async () => {
    await own.dataSource.runMigrations();
    const role = `${own.name}_app`;
    const session = await own.session();
    const checkAsRole = async () => {
      await session.query(`SET ROLE "${role}"`);
      try {
        return await checkSchema((sql, parameters) => session.query(sql, parameters), { schema: own.name });
      } finally {
        await session.query('RESET ROLE');
      }
    };
    await session.query(`CREATE ROLE "${role}"`);
    try {
      await session.query(`GRANT SELECT ON "${own.name}".processed_events TO "${role}"`);
      const error = await rejection(checkAsRole());
      expect(IdempotencyError.is(error, 'SCHEMA_MISMATCH')).toBe(true);
      expect(error.message).toContain(`GRANT USAGE ON SCHEMA "${own.name}" TO "${role}"`);
      expect(error.message).toContain(`GRANT INSERT, UPDATE, DELETE ON "${own.name}"."processed_events" TO "${role}"`);
      expect(error.message).not.toContain('migration:run');
      await session.query(/Run: (.*;)/.exec(error.message)![1]!);
      for (const table of ['parked_events', 'running_records', 'outbox_messages', 'outbox_shards', 'outbox_dedupe']) {
        const next = await rejection(checkAsRole());
        expect(next.message).toContain(`GRANT SELECT, INSERT, UPDATE, DELETE ON "${own.name}"."${table}" TO "${role}"`);
        await session.query(/Run: (.*;)/.exec(next.message)![1]!);
      }
      await expect(checkAsRole()).resolves.toMatchObject({ schema: own.name });
    } finally {
      await session.query(`DROP OWNED BY "${role}"; DROP ROLE "${role}"`);
    }
  });
});

describe('a server that cannot keep the promise', () => {
  it('is refused when synchronous_commit is off, with who set it', async () => {
    await own.dataSource.runMigrations();
    const session = await own.connect({ extra: { options: `-c search_path=${own.name} -c synchronous_commit=off` } });
    const error = await rejection(
      checkSchema((sql, parameters) => session.query(sql, parameters), { schema: undefined }),
    );
    expect(IdempotencyError.is(error, 'DATABASE_UNSUITABLE')).toBe(true);
    expect(error.message).toContain('synchronous_commit is off (set by: client)');
  });

  it('is refused when the database is not in UTF8', async () => {
    const name = `${own.name}_latin`;
    await own.dataSource.query(
      `CREATE DATABASE "${name}" TEMPLATE template0 ENCODING 'LATIN1' LOCALE_PROVIDER libc LC_COLLATE 'C' LC_CTYPE 'C'`,
    );
    const url = new URL(database.url);
    url.pathname = `/${name}`;
    const latin = await own.connect({ url: url.href });
    try {
      const error = await rejection(
        checkSchema((sql, parameters) => latin.query(sql, parameters), { schema: 'public' }),
      );
      expect(IdempotencyError.is(error, 'DATABASE_UNSUITABLE')).toBe(true);
      expect(error.message).toContain('LATIN1');
    } finally {
      await own.dataSource.query(`DROP DATABASE "${name}" WITH (FORCE)`);
    }
  });
});

describe('S1: a schema name', () => {
  it.each(['a"; DROP TABLE orders; --', 'with-hyphen', '', 'x'.repeat(64)])(
    'that is no plain identifier never becomes SQL: %j',
    async (schema) => {
      expect(IdempotencyError.is(await rejection(check(schema)), 'OPTIONS_INVALID')).toBe(true);
    },
  );
});
