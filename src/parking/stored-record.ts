import { createHash } from 'node:crypto';
import type { StoredRecord } from '../shared/parking.js';

const HOLD_KEY_BYTES = 255;
const FIRST_INSTANT = Date.parse('0001-01-01T00:00:00Z');
const LAST_INSTANT = Date.parse('9999-12-31T23:59:59.999Z');

/** By what the events of a key are held: its bytes, or the sha256 of a key too long for an index. A record without a key is never held. */
export function holdKeyOf(key: Buffer | null): Buffer | null {
  if (key === null || key.length <= HOLD_KEY_BYTES) return key;
  return createHash('sha256').update(key).digest();
}

/** A record's time as our column can hold it. It only tells records of one offset apart, so what no calendar knows may end at the edge of ours. */
export function storedTime(timestamp: Date): Date {
  const ms = timestamp.getTime();
  return Number.isNaN(ms) ? new Date(0) : new Date(Math.min(Math.max(ms, FIRST_INSTANT), LAST_INSTANT));
}

/** What tells a consumer's record from every other one: consumer, topic, partition, offset, time. */
export function identityOf(consumer: string, record: StoredRecord): [string, string, number, string, string] {
  return [
    consumer,
    record.topic,
    record.partition,
    record.offset.toString(),
    storedTime(record.timestamp).toISOString(), // in UTC: a Date would be written in the zone of this process
  ];
}

/** The columns event_id to header_values. A header's name may hold a NUL, which PostgreSQL takes in no text. */
export function contentOf(record: StoredRecord, eventId: string | undefined): unknown[] {
  return [
    eventId ?? null,
    record.key,
    record.value,
    record.headers.map(([name]) => name.replaceAll('\0', '\uFFFD')),
    record.headers.map(([, value]) => value),
  ];
}
