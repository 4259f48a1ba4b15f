import { SCHEMA_COMMENT } from './schema-comment.js';
import { column, type TableShape } from './table-shape.js';

/** The table of claims. The column widths are ordered so that no row has padding: 8-byte columns first, then 4, then text. */
export const PROCESSED_EVENTS = 'processed_events';

/** `table` is a quoted, schema-qualified name. The index goes where its table is. */
export function createProcessedEvents(table: string): string[] {
  return [
    `CREATE TABLE ${table} (
  processed_at timestamptz NOT NULL DEFAULT now(),
  record_offset bigint NOT NULL,
  fingerprint bigint NOT NULL,
  partition integer NOT NULL,
  consumer text COLLATE "C" NOT NULL,
  event_id text COLLATE "C" NOT NULL,
  topic text COLLATE "C" NOT NULL,
  PRIMARY KEY (consumer, event_id)
)`,
    `CREATE INDEX processed_events_processed_at ON ${table} USING brin (processed_at) WITH (autosummarize = on)`,
    `COMMENT ON TABLE ${table} IS '${SCHEMA_COMMENT}'`,
  ];
}

const text = { collation: 'C' };

export const PROCESSED_EVENTS_SHAPE: TableShape = {
  name: PROCESSED_EVENTS,
  comment: SCHEMA_COMMENT,
  columns: [
    column('processed_at', 'timestamp with time zone', { default: 'now()' }),
    column('record_offset', 'bigint'),
    column('fingerprint', 'bigint'),
    column('partition', 'integer'),
    column('consumer', 'text', text),
    column('event_id', 'text', text),
    column('topic', 'text', text),
  ],
  primaryKey: ['consumer', 'event_id'],
  indexes: [{ name: 'processed_events_processed_at', method: 'brin', columns: ['processed_at'], where: null }],
  checks: [],
  sqlFile: 'sql/0001-processed-events.sql',
  without: 'no event can be claimed',
  skipped: 'make new events look like duplicates, and they would be lost',
  emptied: 'every event would be applied again',
};
