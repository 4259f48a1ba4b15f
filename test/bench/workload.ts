import { randomBytes } from 'node:crypto';
import { setTimeout as sleep } from 'node:timers/promises';
import type { IdVersion } from './event-ids.js';

/** The one workload of all rows, if nothing else is said: events of 250 bytes of JSON with 500 keys over six partitions, one row inserted for each. */
export const PARTITIONS = 6;
export const KEYS = 500;
export const VALUE_BYTES = 250;
/** Connections of each contender's pool. */
export const POOL = 8;
/** Records at the beginning of a run that are not timed: just-in-time compilation, first fetches, connections. Of short runs, half. */
export const WARM_UP = 2000;
/** What every contender fetches with. */
export const MAX_WAIT_MS = 100;
/** Messages of a transaction, where several share one. */
export const SHARED = 200;
/** The name that all of them claim under. As long as those that the size of a row is promised for. */
export const CONSUMER = 'billing.charge';

export interface Workload {
  readonly records: number;
  readonly partitions: number;
  readonly pool: number;
  readonly valueBytes: number;
  /** How long a handler waits before its statement: another service that it calls. */
  readonly handlerMs: number;
  /** Which share of the records repeats an event sent before. */
  readonly duplicates: number;
  readonly ids: IdVersion;
}

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

export function eventOf(id: string, bytes: number): string {
  const bare = JSON.stringify({ id, filler: '' });
  return JSON.stringify({
    id,
    filler: randomBytes(bytes)
      .toString('hex')
      .slice(0, bytes - bare.length),
  });
}

/** So many events before it is what a duplicate repeats: it has most likely been handled, and is in another batch or transaction. */
const REPEATED_BEFORE = 500;

/** Which event each record carries, by number. Duplicates are spread evenly. */
export function eventsOfRecords(records: number, duplicates: number): number[] {
  let events = 0;
  return Array.from({ length: records }, (_, at) => {
    const repeats = Math.floor((at + 1) * duplicates) > Math.floor(at * duplicates) && events > 0;
    return repeats ? Math.max(0, events - REPEATED_BEFORE) : events++;
  });
}

/** What a contender's process is started with. */
export interface ContenderSetup extends Workload {
  readonly id: string;
  readonly brokers: readonly string[];
  readonly databaseUrl: string;
  readonly schema: string;
  readonly topic: string;
  readonly group: string;
  readonly warmUp: number;
  /** Records in the first partition, which `ours-failing` cannot handle before the others are done. */
  readonly inFirst: number;
}

/** What it tells at the end: the time from the end of the warm-up to the last record, and its memory. */
export interface ContenderResult extends Timing {
  /** The largest resident set, before it began to consume and at the end. */
  readonly rssAtStartBytes: number;
  readonly peakRssBytes: number;
}

export interface Timing {
  readonly timedEvents: number;
  readonly ms: number;
  readonly cpuMs: number;
}

/** How many records of a run are timed, the warm-up included. */
export function timedEvents({ id, records, inFirst }: ContenderSetup): number {
  return id === 'ours-failing' ? records - inFirst : records;
}

/** What a handler does before its statement. */
export function pauseOf({ handlerMs }: Workload): Promise<void> | undefined {
  return handlerMs > 0 ? sleep(handlerMs) : undefined;
}
