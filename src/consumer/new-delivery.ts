import { DeliveryInProgress } from '../shared/delivery.js';
import { KafkaSends } from '../shared/kafka-sends.js';
import type { ConsumedRecord } from './consumed-record.js';
import type { RegisteredHandler } from './handler-table.js';

/** With a fresh copy of the record's bytes. */
export function newDelivery(
  { profile: { settings, consumer, transaction } }: RegisteredHandler,
  record: ConsumedRecord,
  { attempt, jsonDepth }: { readonly attempt: number; readonly jsonDepth: number },
): DeliveryInProgress {
  const delivery = new DeliveryInProgress(record.view(settings.decode, jsonDepth), consumer, attempt);
  if (transaction === 'kafka') delivery.sends = new KafkaSends();
  return delivery;
}
