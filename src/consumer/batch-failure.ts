import { IdempotencyError } from '../shared/errors.js';
import { errorChain } from '../shared/sql-state.js';

/** What is known of a batch whose handler failed. `fresh`: places in the group of those it was called with; undefined: nothing was claimed yet. */
export interface FailedBatch {
  readonly fresh: readonly number[] | undefined;
  readonly error: unknown;
}

/**
 * The place in its group of the record that is to blame, undefined if nothing tells that. Pure. A claim that failed lets the first go its own way, where that is
 * looked at; an item is named by a BatchItemError, of whatever copy of the package, also as a cause; one that was alone in the array needs no name.
 */
export function blamedPlace({ fresh, error }: FailedBatch): number | undefined {
  if (fresh === undefined) return 0;
  if (fresh.length === 1) return fresh[0];
  for (const link of errorChain(error)) {
    if (!IdempotencyError.is(link, 'BATCH_ITEM_FAILED')) continue;
    const { index } = link as { index?: unknown };
    const place = typeof index === 'number' ? fresh[index] : undefined;
    if (place !== undefined) return place;
  }
  return undefined;
}
