-- Parked events and the marks of running records: the same as the second TypeORM migration of nestjs-kafka-idempotency.
-- Run it after 0001, with the search_path set to the schema of the tables. The runtime role then needs:
--   GRANT SELECT, INSERT, UPDATE, DELETE ON parked_events, running_records TO <role>;

CREATE TABLE parked_events (
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
);

CREATE INDEX parked_events_due ON parked_events (due_at) WHERE state = 'scheduled';

CREATE INDEX parked_events_hold ON parked_events (consumer, topic, hold_key, record_offset) WHERE hold_key IS NOT NULL;

CREATE INDEX parked_events_origin ON parked_events (group_id, topic, partition);

COMMENT ON TABLE parked_events IS 'nestjs-kafka-idempotency schema 1';

CREATE TABLE running_records (
  group_id text COLLATE "C",
  topic text COLLATE "C",
  partition integer,
  record_offset bigint NOT NULL,
  instance uuid NOT NULL,
  deaths smallint NOT NULL DEFAULT 0,
  started_at timestamptz NOT NULL DEFAULT now(),
  PRIMARY KEY (group_id, topic, partition)
);

COMMENT ON TABLE running_records IS 'nestjs-kafka-idempotency schema 1';
