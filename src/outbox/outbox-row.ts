import type { OutgoingMessage } from '../kafka/checked-producer.js';
import type { SentMessage } from '../shared/kafka-sends.js';
import type { EncodedMessage } from './encoded-message.js';

/** A row of outbox_messages that is to be sent. */
export interface OutboxRow extends Omit<EncodedMessage, 'dedupeKey' | 'headers'> {
  readonly id: bigint;
  readonly shard: number;
  readonly headerNames: readonly string[];
  readonly headerValues: readonly Buffer[];
  /** Failed ones. */
  readonly attempts: number;
  /** Milliseconds until it may be tried; 0 or less: now. */
  readonly waitMs: number;
}

export interface RowMessage extends OutgoingMessage {
  readonly row: OutboxRow;
}

export function rowMessage(row: OutboxRow): RowMessage {
  const { topic, partition, key, value, headerNames, headerValues } = row;
  const headers = Object.fromEntries(headerNames.map((name, at) => [name, headerValues[at]!]));
  return partition === null ? { topic, key, value, headers, row } : { topic, key, value, headers, partition, row };
}

export function kafkaMessage(message: Omit<EncodedMessage, 'dedupeKey'>): SentMessage {
  const { topic, partition, key, value, headers } = message;
  return { topic, key, value, headers: Object.fromEntries(headers), ...(partition === null ? {} : { partition }) };
}

/** What shares an order: rows of one key; a row without a key has none. */
export function lineOf({ id, key }: Pick<OutboxRow, 'id' | 'key'>): string {
  return key === null ? `#${id}` : `=${key.toString('latin1')}`;
}
