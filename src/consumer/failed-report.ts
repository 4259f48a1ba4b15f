import type { DeliveryInProgress, DeliveryReport } from '../shared/delivery.js';
import { IdempotencyError } from '../shared/errors.js';

/** What was killed while it waited for its connection, its claim or the acknowledgement of its reply says nothing about the handler. */
export function failedReport(error: unknown, { isOpening, isReplying }: DeliveryInProgress): DeliveryReport {
  if (isOpening || IdempotencyError.is(error, 'DATABASE_UNAVAILABLE'))
    return { outcome: 'failed', error, isOutage: true };
  if (!isReplying || IdempotencyError.is(error, 'BROKER_UNAVAILABLE')) return { outcome: 'failed', error };
  const message = 'The reply was not acknowledged in time; the request runs again';
  return {
    outcome: 'failed',
    error: new IdempotencyError('BROKER_UNAVAILABLE', message, { cause: error, retryable: true }),
  };
}
