-- The claims of nestjs-kafka-idempotency: the same as its first TypeORM migration, for those who migrate with other tools.
-- Run it with the search_path set to the schema of the tables. The runtime role then needs:
--   GRANT USAGE ON SCHEMA <schema> TO <role>;
--   GRANT SELECT, INSERT, UPDATE, DELETE ON processed_events TO <role>;

CREATE TABLE processed_events (
  processed_at timestamptz NOT NULL DEFAULT now(),
  record_offset bigint NOT NULL,
  fingerprint bigint NOT NULL,
  partition integer NOT NULL,
  consumer text COLLATE "C" NOT NULL,
  event_id text COLLATE "C" NOT NULL,
  topic text COLLATE "C" NOT NULL,
  PRIMARY KEY (consumer, event_id)
);

CREATE INDEX processed_events_processed_at ON processed_events USING brin (processed_at) WITH (autosummarize = on);

COMMENT ON TABLE processed_events IS 'nestjs-kafka-idempotency schema 1';
