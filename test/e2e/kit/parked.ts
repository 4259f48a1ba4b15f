import type { World } from './world.js';

/** A parked row as tests look at it. */
export interface ParkedRow {
  readonly id: string;
  readonly state: string;
  readonly consumer: string;
  readonly offset: string;
  readonly event_id: string | null;
  readonly key: Buffer | null;
  readonly value: Buffer | null;
  readonly header_names: string[];
  readonly header_values: (Buffer | null)[];
  readonly reason: string;
  readonly error_code: string | null;
  readonly error_message: string | null;
  readonly attempts: number;
  readonly rounds: number;
  readonly replays: number;
  readonly history: unknown[];
}

/** All parked rows, in the order of their records. */
export async function parkedRows(world: World, consumer?: string): Promise<ParkedRow[]> {
  return world.db.query<ParkedRow[]>(
    `SELECT id, state, consumer, record_offset AS offset, event_id, record_key AS key, record_value AS value, header_names, header_values, reason, error_code, error_message,
       attempts, rounds, replays, history FROM parked_events WHERE $1::text IS NULL OR consumer = $1 ORDER BY partition, record_offset, consumer`,
    [consumer ?? null],
  );
}
