import type { Given } from './arguments.js';
import { handBatch, handMessage, handShared } from './hand-loops.js';
import { nestStock } from './nest-stock.js';
import { ours, oursBatch, oursFailing, oursReplay } from './ours.js';
import { relay } from './relay.js';
import type { Stopwatch } from './stopwatch.js';
import { PARTITIONS, POOL, SHARED, VALUE_BYTES, type ContenderSetup, type Workload } from './workload.js';

/** Starts consuming; the answer stops it again, offsets committed. */
export type Contender = (setup: ContenderSetup, watch: Stopwatch) => Promise<() => Promise<void>>;

/** Keys of one partition at work at once, in `ours-keys`. */
const KEYS_AT_ONCE = 16;

/** In the order of the table. */
export const CONTENDERS: Record<string, Contender> = {
  'nest-stock': nestStock(1),
  'nest-stock-6': nestStock(PARTITIONS),
  'hand-message': handMessage,
  'ours-default': ours(),
  'ours-window': ours({ durability: 'window' }),
  'ours-replay': oursReplay,
  'ours-failing': oursFailing,
  'hand-shared': handShared,
  'ours-shared': ours({ messagesPerTransaction: SHARED }),
  'ours-shared-keys': ours({ messagesPerTransaction: SHARED, concurrency: { keys: 50, interleave: true } }),
  'hand-batch': handBatch,
  'ours-batch': oursBatch,
  'ours-sequential': ours(),
  'ours-keys': ours({ concurrency: { keys: KEYS_AT_ONCE } }),
  relay,
};

/** What a row's ratio is taken against. */
export const AGAINST: Record<string, string | null> = {
  'nest-stock': null,
  'nest-stock-6': 'nest-stock',
  'hand-message': 'nest-stock-6',
  'ours-default': 'hand-message',
  'ours-window': 'ours-default',
  'ours-replay': 'ours-default',
  'ours-failing': 'ours-default',
  'hand-shared': 'nest-stock-6',
  'ours-shared': 'hand-shared',
  'ours-shared-keys': 'hand-shared',
  'hand-batch': 'nest-stock-6',
  'ours-batch': 'hand-batch',
  'ours-sequential': null,
  'ours-keys': 'ours-sequential',
  relay: null,
};

/** How many times the events of the others a row gets: what is fast would be done before it had got going, what is slow would take minutes. */
export const MORE_EVENTS: Readonly<Record<string, number>> = {
  'ours-replay': 4,
  'hand-shared': 5,
  'ours-shared': 5,
  'ours-shared-keys': 5,
  'hand-batch': 15,
  'ours-batch': 15,
  'ours-sequential': 1 / 7,
  relay: 10,
};

/** What else of the workload is another one in a row. A slot for each of the keys, and the two connections that are kept free of transactions. */
export const OWN_WORKLOAD: Readonly<Record<string, Partial<Workload>>> = {
  'ours-sequential': { partitions: 1, handlerMs: 5 },
  'ours-keys': { partitions: 1, handlerMs: 5, pool: KEYS_AT_ONCE + 2 },
};

/** The workload of a row. Where every handler waits, no row is fast, and none gets more events. */
export function workloadOf(id: string, { events, handlerMs, duplicates }: Given): Workload {
  const times = handlerMs > 0 ? 1 : (MORE_EVENTS[id] ?? 1);
  return {
    records: Math.round(events * times),
    partitions: PARTITIONS,
    pool: POOL,
    valueBytes: VALUE_BYTES,
    handlerMs,
    duplicates,
    ids: 'v4',
    ...OWN_WORKLOAD[id],
  };
}
