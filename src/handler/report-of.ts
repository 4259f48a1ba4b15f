import type { DeliveryReport } from '../shared/delivery.js';
import { IdempotencyError } from '../shared/errors.js';
import type { OpenTransaction } from '../transaction/open-transaction.js';

/** What is told of a delivery that failed with this error, in this transaction if there was one. */
export function reportOf(error: unknown, transaction: OpenTransaction | undefined): DeliveryReport {
  if (IdempotencyError.is(error, 'CLAIM_BUSY')) return { outcome: 'busy', error };
  if (IdempotencyError.is(error, 'COMMIT_UNKNOWN')) return { outcome: 'unknown', error };
  const isOutage = transaction?.isOutage === true || IdempotencyError.is(error, 'DATABASE_UNAVAILABLE');
  return isOutage ? { outcome: 'failed', error, isOutage } : { outcome: 'failed', error };
}
