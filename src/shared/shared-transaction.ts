import type { BatchDelivery } from './batch-delivery.js';
import type { DeliveryInProgress } from './delivery.js';

/** How a shared transaction ended. `refused`: nothing of it is in the database. `unknown`: nobody knows; the claims of the next run decide. */
export type SharedEnd =
  | { readonly kind: 'committed' }
  | { readonly kind: 'refused'; readonly error: unknown; readonly isOutage: boolean }
  | { readonly kind: 'unknown'; readonly error: unknown };

/**
 * One transaction for several records of a partition, each with a delivery for each handler:
 * - it begins, and claims for all of them, when the first of them is at its handler;
 * - each handler is called by itself, in order, inside of it, and one that takes batches once; interleaved, those of several records may be called at once when it has opened;
 * - all of it is committed, or nothing.
 */
export interface SharedTransaction {
  /** So many records, from the first on, are in it; the one behind has no event id. Known once the first handler has been asked for. */
  readonly size: number;
  /** Resolves once it has begun and claimed; never, if that failed. */
  readonly opened: Promise<void>;
  /**
   * Opens it, unless that is done, and gives those of the batch's deliveries whose events are to run, in their order.
   * Throws what it has reported to the batch.
   */
  claim(batch: BatchDelivery): Promise<readonly DeliveryInProgress[]>;
  /** Once every delivery in it has been run. Never rejects. */
  commit(): Promise<SharedEnd>;
  /** Never rejects. */
  rollback(): Promise<void>;
}

/** Port: the consumer lets records share a transaction that the handler room opens. `deliveries`: those of each record. */
export interface SharedTransactions {
  over(
    deliveries: readonly (readonly DeliveryInProgress[])[],
    options: { readonly interleaved: boolean },
  ): SharedTransaction;
}
