import { HISTORY_ENTRIES } from '../shared/failed-attempt.js';
import type { FailedAttempt, StoredRecord } from '../shared/parking.js';
import type { ParkedEvent, ParkedHistoryEntry } from './parked-event.js';
import type { EventPlace } from '../shared/events.js';

/** A row of parked_events as the statements of this room give it. */
export interface ParkedRow extends Omit<ParkedEvent, 'headers'> {
  readonly headerNames: readonly string[];
  readonly headerValues: readonly (Buffer | null)[];
}

/** The select list of a {@link ParkedRow}. */
export const ROW = `id, state, consumer, group_id AS "groupId", topic, partition, record_offset AS "recordOffset", record_timestamp AS "recordTimestamp",
  event_id AS "eventId", record_key AS "recordKey", record_value AS "recordValue", header_names AS "headerNames", header_values AS "headerValues", hold_key AS "holdKey",
  reason, error_code AS "errorCode", error_name AS "errorName", error_message AS "errorMessage", attempts, rounds, replays, history, edited_value AS "editedValue", version,
  due_at AS "dueAt", first_failed_at AS "firstFailedAt", last_failed_at AS "lastFailedAt", parked_at AS "parkedAt"`;

/** The history with one entry more, in SQL: `entry` is a parameter that holds its JSON. */
export function historyWith(entry: string): string {
  return `(CASE WHEN jsonb_array_length(history) >= ${HISTORY_ENTRIES} THEN history - 0 ELSE history END) || ${entry}::jsonb`;
}

/** Of a row p: an earlier row of its key stands, so it would leave the order. A discarded one does not stand. */
export const HAS_EARLIER = `EXISTS (SELECT FROM parked_events e WHERE e.consumer = p.consumer AND e.topic = p.topic AND e.hold_key = p.hold_key AND e.partition = p.partition
    AND e.record_offset <= p.record_offset AND (e.record_offset, e.id) < (p.record_offset, p.id) AND e.state <> 'discarded')`;

/** `edited`: with the value a person put in its place. */
export function recordOf(row: ParkedRow, { edited }: { edited: boolean }): StoredRecord {
  return {
    topic: row.topic,
    partition: row.partition,
    offset: BigInt(row.recordOffset),
    timestamp: row.recordTimestamp,
    key: row.recordKey,
    value: edited ? (row.editedValue ?? row.recordValue) : row.recordValue,
    headers: row.headerNames.map((name, index) => [name, row.headerValues[index] ?? null] as const),
  };
}

export function historyEntry({ at, code, name, message }: FailedAttempt): ParkedHistoryEntry {
  return { at: at.toISOString(), code, name, message };
}

/** Of a row, what events and log lines say. */
export type PlacedRow = Pick<ParkedRow, 'consumer' | 'topic' | 'partition' | 'recordOffset' | 'eventId' | 'attempts'>;

/** The select list of a {@link PlacedRow}. */
export const PLACE = `consumer, topic, partition, record_offset AS "recordOffset", event_id AS "eventId", attempts`;

export function placeOfRow(row: PlacedRow): EventPlace {
  return {
    topic: row.topic,
    partition: row.partition,
    offset: row.recordOffset,
    consumer: row.consumer,
    eventId: row.eventId ?? undefined,
    attempt: row.attempts + 1,
  };
}

export function parkedEvent({ headerNames, headerValues, ...row }: ParkedRow): ParkedEvent {
  return { ...row, headers: headerNames.map((name, index) => [name, headerValues[index] ?? null] as const) };
}
