import type { TestEvent, Tools } from './handlers.js';

/** An event that says which of its key it is. */
export interface Keyed extends TestEvent {
  readonly k: string | null;
  readonly seq: number;
}

export const keyed = (k: string | null, seq: number) => ({ id: `${k}-${seq}`, key: k, payload: { k, seq } });

export const writeKeyed = ({ dataSource }: Tools, { id, k, seq }: Keyed) =>
  dataSource.query('INSERT INTO effects (event_id, key, seq) VALUES ($1, $2, $3)', [id, k, seq]);
