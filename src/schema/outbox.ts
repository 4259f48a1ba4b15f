import { SCHEMA_COMMENT } from './schema-comment.js';
import { column, type TableShape } from './table-shape.js';

/** What is to be sent: the bytes as they will leave. A row goes when Kafka has acknowledged it. */
export const OUTBOX_MESSAGES = 'outbox_messages';
/** Who relays which part of the keys. */
export const OUTBOX_SHARDS = 'outbox_shards';
/** The dedupeKeys that were published, longer than their messages. */
export const OUTBOX_DEDUPE = 'outbox_dedupe';
/** The messages under the names that Debezium's outbox router looks for. */
export const OUTBOX_EVENTS = 'outbox_events';

/** Quoted, schema-qualified names. */
export interface OutboxNames {
  readonly messages: string;
  readonly events: string;
  readonly shards: string;
  readonly dedupe: string;
}

export function createOutbox({ messages, events, shards, dedupe }: OutboxNames): string[] {
  return [
    // One id at a time (CACHE 1), so that of two transactions that wait for one another the later one has the higher ids.
    `CREATE TABLE ${messages} (
  id bigint GENERATED ALWAYS AS IDENTITY (CACHE 1) PRIMARY KEY,
  shard smallint NOT NULL,
  state text NOT NULL DEFAULT 'pending' CHECK (state IN ('pending', 'parked')),
  event_id text COLLATE "C" NOT NULL,
  topic text COLLATE "C" NOT NULL,
  partition integer,
  message_key bytea,
  message_value bytea,
  header_names text[] NOT NULL,
  header_values bytea[] NOT NULL,
  created_at timestamptz NOT NULL DEFAULT now(),
  due_at timestamptz NOT NULL DEFAULT now(),
  attempts integer NOT NULL DEFAULT 0,
  error_code text,
  error_message text
)`,
    `CREATE INDEX outbox_messages_pending ON ${messages} (shard, id) WHERE state = 'pending'`,
    `COMMENT ON TABLE ${messages} IS '${SCHEMA_COMMENT}'`,
    `CREATE VIEW ${events} AS
SELECT event_id AS id, topic AS aggregatetype, message_key AS aggregateid, topic AS type, message_value AS payload, created_at AS timestamp
FROM ${messages}`,
    `CREATE TABLE ${shards} (
  shard smallint PRIMARY KEY,
  owner uuid,
  token bigint NOT NULL DEFAULT 0,
  lease_until timestamptz,
  low_water_id bigint NOT NULL DEFAULT 0
)`,
    `INSERT INTO ${shards} (shard) SELECT generate_series(0, 15)`,
    `COMMENT ON TABLE ${shards} IS '${SCHEMA_COMMENT}'`,
    `CREATE TABLE ${dedupe} (
  created_at timestamptz NOT NULL DEFAULT now(),
  topic text COLLATE "C",
  dedupe_key text COLLATE "C",
  event_id text COLLATE "C" NOT NULL,
  PRIMARY KEY (topic, dedupe_key)
)`,
    `CREATE INDEX outbox_dedupe_created_at ON ${dedupe} USING brin (created_at) WITH (autosummarize = on)`,
    `COMMENT ON TABLE ${dedupe} IS '${SCHEMA_COMMENT}'`,
  ];
}

const text = { collation: 'C' };
const plain = { collation: 'default' };
const nullable = { notNull: false };
const zero = { default: '0' };
const now = { default: 'now()' };
const instant = 'timestamp with time zone';
const sqlFile = 'sql/0003-outbox.sql';

export const OUTBOX_MESSAGES_SHAPE: TableShape = {
  name: OUTBOX_MESSAGES,
  comment: SCHEMA_COMMENT,
  columns: [
    column('id', 'bigint', { default: 'identity' }),
    column('shard', 'smallint'),
    column('state', 'text', { ...plain, default: "'pending'::text" }),
    column('event_id', 'text', text),
    column('topic', 'text', text),
    column('partition', 'integer', nullable),
    column('message_key', 'bytea', nullable),
    column('message_value', 'bytea', nullable),
    column('header_names', 'text[]', plain),
    column('header_values', 'bytea[]'),
    column('created_at', instant, now),
    column('due_at', instant, now),
    column('attempts', 'integer', zero),
    column('error_code', 'text', { ...plain, ...nullable }),
    column('error_message', 'text', { ...plain, ...nullable }),
  ],
  primaryKey: ['id'],
  indexes: [
    {
      name: 'outbox_messages_pending',
      method: 'btree',
      columns: ['shard', 'id'],
      where: "(state = 'pending'::text)",
    },
  ],
  checks: [
    {
      name: 'outbox_messages_state_check',
      definition: "CHECK ((state = ANY (ARRAY['pending'::text, 'parked'::text])))",
    },
  ],
  sqlFile,
  without: 'no event can be published in a transaction',
  skipped: 'keep a published event from being stored, and it would be lost',
  emptied: 'every event not sent yet would be lost',
};

export const OUTBOX_SHARDS_SHAPE: TableShape = {
  name: OUTBOX_SHARDS,
  comment: SCHEMA_COMMENT,
  columns: [
    column('shard', 'smallint'),
    column('owner', 'uuid', nullable),
    column('token', 'bigint', zero),
    column('lease_until', instant, nullable),
    column('low_water_id', 'bigint', zero),
  ],
  primaryKey: ['shard'],
  indexes: [],
  checks: [],
  sqlFile,
  without: 'two relays could send the events of one key at once',
  skipped: 'keep the events of a shard from ever being sent',
  emptied: 'no event would be sent any more',
};

export const OUTBOX_DEDUPE_SHAPE: TableShape = {
  name: OUTBOX_DEDUPE,
  comment: SCHEMA_COMMENT,
  columns: [
    column('created_at', instant, now),
    column('topic', 'text', text),
    column('dedupe_key', 'text', text),
    column('event_id', 'text', text),
  ],
  primaryKey: ['topic', 'dedupe_key'],
  indexes: [{ name: 'outbox_dedupe_created_at', method: 'brin', columns: ['created_at'], where: null }],
  checks: [],
  sqlFile,
  without: 'an event published twice under one dedupeKey would be sent twice',
  skipped: 'make a new event look as if it had been published before, and it would be lost',
  emptied: 'events published before a crash could be published again',
};

export const OUTBOX_SHAPES: readonly TableShape[] = [OUTBOX_MESSAGES_SHAPE, OUTBOX_SHARDS_SHAPE, OUTBOX_DEDUPE_SHAPE];
