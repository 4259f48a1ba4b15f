/** The table of claims. The column widths are ordered so that no row has padding: 8-byte columns first, then 4, then text. */
export const PROCESSED_EVENTS = 'processed_events';

/** Marks the table as ours and says which shape it has; the last statement, so that a migration broken off is seen. */
export const PROCESSED_EVENTS_COMMENT = 'nestjs-kafka-idempotency schema 1';

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
    `COMMENT ON TABLE ${table} IS '${PROCESSED_EVENTS_COMMENT}'`,
  ];
}

/** Fails, rather than taking them with it, when other objects depend on the table. */
export function dropProcessedEvents(table: string): string[] {
  return [`DROP TABLE ${table}`];
}
