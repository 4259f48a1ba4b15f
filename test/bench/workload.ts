import { randomBytes } from 'node:crypto';

/** The one workload of all rows: events of 250 bytes of JSON with 500 keys over six partitions, one row inserted for each. */
export const PARTITIONS = 6;
export const KEYS = 500;
export const VALUE_BYTES = 250;
/** Connections of each contender's pool. */
export const POOL = 8;
/** Events at the beginning of a run that are not timed: just-in-time compilation, first fetches, connections. */
export const WARM_UP = 2000;

export interface BenchEvent {
  readonly id: string;
  readonly filler: string;
}

/** The statement each handler and each hand-written loop makes for an event. */
export const EFFECT = 'INSERT INTO effects (event_id) VALUES ($1)';
/** The same for many events at once. */
export const EFFECTS = 'INSERT INTO effects (event_id) SELECT unnest($1::text[])';
/** What a hand-written loop claims with: the same row as ours, in the same table. */
export const HAND_CLAIM =
  'INSERT INTO processed_events (consumer, event_id, topic, partition, record_offset, fingerprint) VALUES ($1, $2, $3, $4, $5, 0) ON CONFLICT DO NOTHING RETURNING 1';

/** The same for the events of several messages of a partition: those that are ours to handle come back. In one order, or two of these deadlock. */
export const HAND_CLAIMS =
  'INSERT INTO processed_events (consumer, event_id, topic, partition, record_offset, fingerprint) SELECT $1, id, $2, $3, at, 0 FROM unnest($4::text[], $5::bigint[]) AS event (id, at) ORDER BY id COLLATE "C", at ON CONFLICT DO NOTHING RETURNING event_id';

export function eventOf(id: string): string {
  const bare = JSON.stringify({ id, filler: '' });
  return JSON.stringify({
    id,
    filler: randomBytes(VALUE_BYTES)
      .toString('hex')
      .slice(0, VALUE_BYTES - bare.length),
  });
}

/** What a contender's process is started with. */
export interface ContenderSetup {
  readonly id: string;
  readonly brokers: readonly string[];
  readonly databaseUrl: string;
  readonly schema: string;
  readonly topic: string;
  readonly group: string;
  readonly events: number;
  /** Events in the first partition, which `ours-failing` cannot handle before the others are done. */
  readonly inFirst: number;
}

/** What it tells at the end: the time from the end of the warm-up to the last event. */
export interface ContenderResult {
  readonly timedEvents: number;
  readonly ms: number;
  readonly cpuMs: number;
}
