import type { DeliveryInProgress } from '../shared/delivery.js';
import { IdempotencyError } from '../shared/errors.js';

/** The transport tries again, with a new delivery and what that needs; a second run of this one would not have it. */
export function calledAgain({ consumer, reported }: DeliveryInProgress): unknown {
  if (reported !== undefined && 'error' in reported) return reported.error;
  return new IdempotencyError(
    'HANDLER_FAILED',
    `${consumer} was called a second time for one delivery, by an interceptor in front of it that subscribes again. Take that away: the transport retries`,
  );
}

export function transportMissing(consumer: string): IdempotencyError {
  const message = `${consumer} was called by a transport that is not IdempotentKafkaServer, which would commit the offset on its own. Connect the application with { strategy: app.get(IdempotentKafkaServer) }`;
  return new IdempotencyError('TRANSPORT_MISSING', message);
}
