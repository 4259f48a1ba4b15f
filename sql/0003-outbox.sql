-- Events out: the same as the third TypeORM migration of nestjs-kafka-idempotency.
-- Run it after 0002, with the search_path set to the schema of the tables. The runtime role then needs:
--   GRANT SELECT, INSERT, UPDATE, DELETE ON outbox_messages, outbox_shards, outbox_dedupe TO <role>;

CREATE TABLE outbox_messages (
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
);

CREATE INDEX outbox_messages_pending ON outbox_messages (shard, id) WHERE state = 'pending';

COMMENT ON TABLE outbox_messages IS 'nestjs-kafka-idempotency schema 1';

CREATE VIEW outbox_events AS
SELECT event_id AS id, topic AS aggregatetype, message_key AS aggregateid, topic AS type, message_value AS payload, created_at AS timestamp
FROM outbox_messages;

CREATE TABLE outbox_shards (
  shard smallint PRIMARY KEY,
  owner uuid,
  token bigint NOT NULL DEFAULT 0,
  lease_until timestamptz,
  low_water_id bigint NOT NULL DEFAULT 0
);

INSERT INTO outbox_shards (shard) SELECT generate_series(0, 15);

COMMENT ON TABLE outbox_shards IS 'nestjs-kafka-idempotency schema 1';

CREATE TABLE outbox_dedupe (
  created_at timestamptz NOT NULL DEFAULT now(),
  topic text COLLATE "C",
  dedupe_key text COLLATE "C",
  event_id text COLLATE "C" NOT NULL,
  PRIMARY KEY (topic, dedupe_key)
);

CREATE INDEX outbox_dedupe_created_at ON outbox_dedupe USING brin (created_at) WITH (autosummarize = on);

COMMENT ON TABLE outbox_dedupe IS 'nestjs-kafka-idempotency schema 1';
