import { SCHEMA_COMMENT } from './schema-comment.js';
import { column, type TableShape } from './table-shape.js';

/** The first record that runs after each assignment, so that one that ends the process is told. A row goes at any orderly end. */
export const RUNNING_RECORDS = 'running_records';

/** `table` is a quoted, schema-qualified name. */
export function createRunningRecords(table: string): string[] {
  return [
    `CREATE TABLE ${table} (
  group_id text COLLATE "C",
  topic text COLLATE "C",
  partition integer,
  record_offset bigint NOT NULL,
  instance uuid NOT NULL,
  deaths smallint NOT NULL DEFAULT 0,
  started_at timestamptz NOT NULL DEFAULT now(),
  PRIMARY KEY (group_id, topic, partition)
)`,
    `COMMENT ON TABLE ${table} IS '${SCHEMA_COMMENT}'`,
  ];
}

export const RUNNING_RECORDS_SHAPE: TableShape = {
  name: RUNNING_RECORDS,
  comment: SCHEMA_COMMENT,
  columns: [
    column('group_id', 'text', { collation: 'C' }),
    column('topic', 'text', { collation: 'C' }),
    column('partition', 'integer'),
    column('record_offset', 'bigint'),
    column('instance', 'uuid'),
    column('deaths', 'smallint', { default: '0' }),
    column('started_at', 'timestamp with time zone', { default: 'now()' }),
  ],
  primaryKey: ['group_id', 'topic', 'partition'],
  indexes: [],
  checks: [],
  sqlFile: 'sql/0002-parked-events.sql',
  without: 'a record that ends the process cannot be told',
  skipped: 'keep a record that ends the process from being told',
  emptied: 'the deaths of processes would be counted anew',
};
