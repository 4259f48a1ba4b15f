import { SCHEMA_COMMENT } from './schema-comment.js';
import { column, type TableShape } from './table-shape.js';

/** The events that could not be handled, and those held behind them. A row goes when its event has been processed. */
export const PARKED_EVENTS = 'parked_events';

/** `table` is a quoted, schema-qualified name. The indexes go where their table is. */
export function createParkedEvents(table: string): string[] {
  return [
    `CREATE TABLE ${table} (
  id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  state text NOT NULL CHECK (state IN ('scheduled', 'dead', 'held', 'discarded')),
  consumer text COLLATE "C" NOT NULL,
  group_id text COLLATE "C" NOT NULL,
  topic text COLLATE "C" NOT NULL,
  partition integer NOT NULL,
  record_offset bigint NOT NULL,
  record_timestamp timestamptz NOT NULL,
  event_id text COLLATE "C",
  record_key bytea,
  record_value bytea,
  header_names text[] NOT NULL,
  header_values bytea[] NOT NULL,
  hold_key bytea,
  reason text NOT NULL,
  error_code text,
  error_name text,
  error_message text,
  attempts integer NOT NULL DEFAULT 0,
  rounds integer NOT NULL DEFAULT 0,
  replays integer NOT NULL DEFAULT 0,
  history jsonb NOT NULL DEFAULT '[]',
  edited_value bytea,
  version integer NOT NULL DEFAULT 1,
  due_at timestamptz,
  first_failed_at timestamptz,
  last_failed_at timestamptz,
  parked_at timestamptz NOT NULL DEFAULT now(),
  UNIQUE (consumer, topic, partition, record_offset, record_timestamp)
)`,
    `CREATE INDEX parked_events_due ON ${table} (due_at) WHERE state = 'scheduled'`,
    `CREATE INDEX parked_events_hold ON ${table} (consumer, topic, hold_key, record_offset) WHERE hold_key IS NOT NULL`,
    `CREATE INDEX parked_events_origin ON ${table} (group_id, topic, partition)`,
    `COMMENT ON TABLE ${table} IS '${SCHEMA_COMMENT}'`,
  ];
}

const text = { collation: 'C' };
const plain = { collation: 'default' };
const nullable = { notNull: false };
const zero = { default: '0' };

export const PARKED_EVENTS_SHAPE: TableShape = {
  name: PARKED_EVENTS,
  comment: SCHEMA_COMMENT,
  columns: [
    column('id', 'bigint', { default: 'identity' }),
    column('state', 'text', plain),
    column('consumer', 'text', text),
    column('group_id', 'text', text),
    column('topic', 'text', text),
    column('partition', 'integer'),
    column('record_offset', 'bigint'),
    column('record_timestamp', 'timestamp with time zone'),
    column('event_id', 'text', { ...text, ...nullable }),
    column('record_key', 'bytea', nullable),
    column('record_value', 'bytea', nullable),
    column('header_names', 'text[]', plain),
    column('header_values', 'bytea[]'),
    column('hold_key', 'bytea', nullable),
    column('reason', 'text', plain),
    column('error_code', 'text', { ...plain, ...nullable }),
    column('error_name', 'text', { ...plain, ...nullable }),
    column('error_message', 'text', { ...plain, ...nullable }),
    column('attempts', 'integer', zero),
    column('rounds', 'integer', zero),
    column('replays', 'integer', zero),
    column('history', 'jsonb', { default: "'[]'::jsonb" }),
    column('edited_value', 'bytea', nullable),
    column('version', 'integer', { default: '1' }),
    column('due_at', 'timestamp with time zone', nullable),
    column('first_failed_at', 'timestamp with time zone', nullable),
    column('last_failed_at', 'timestamp with time zone', nullable),
    column('parked_at', 'timestamp with time zone', { default: 'now()' }),
  ],
  primaryKey: ['id'],
  unique: ['consumer', 'topic', 'partition', 'record_offset', 'record_timestamp'],
  indexes: [
    { name: 'parked_events_due', method: 'btree', columns: ['due_at'], where: "(state = 'scheduled'::text)" },
    {
      name: 'parked_events_hold',
      method: 'btree',
      columns: ['consumer', 'topic', 'hold_key', 'record_offset'],
      where: '(hold_key IS NOT NULL)',
    },
    { name: 'parked_events_origin', method: 'btree', columns: ['group_id', 'topic', 'partition'], where: null },
  ],
  checks: [
    {
      name: 'parked_events_state_check',
      definition: "CHECK ((state = ANY (ARRAY['scheduled'::text, 'dead'::text, 'held'::text, 'discarded'::text])))",
    },
  ],
  sqlFile: 'sql/0002-parked-events.sql',
  without: 'no event can be parked',
  skipped: 'make an event look as if it were parked already, and it would be lost',
  emptied: 'every parked event would be lost',
};
