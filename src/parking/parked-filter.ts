import { IdempotencyError, type ErrorCode } from '../shared/errors.js';
import type { ParkedState } from '../shared/parking.js';

/** Which parked events are meant: those that fit everything given. `since` and `until` look at when an event was parked. */
export interface ParkedFilter {
  readonly ids?: readonly string[];
  readonly state?: ParkedState;
  readonly consumer?: string;
  readonly topic?: string;
  readonly eventId?: string;
  readonly errorCode?: ErrorCode;
  readonly since?: Date;
  readonly until?: Date;
}

const FIELDS = ['ids', 'state', 'consumer', 'topic', 'eventId', 'errorCode', 'since', 'until'] as const;

/** The condition of {@link filterValues}: parameters $1 to $8. */
export const FITS = `($1::bigint[] IS NULL OR id = ANY ($1)) AND ($2::text IS NULL OR state = $2) AND ($3::text IS NULL OR consumer = $3) AND ($4::text IS NULL OR topic = $4)
  AND ($5::text IS NULL OR event_id = $5) AND ($6::text IS NULL OR error_code = $6) AND ($7::timestamptz IS NULL OR parked_at >= $7) AND ($8::timestamptz IS NULL OR parked_at < $8)`;

/** Throws OPTIONS_INVALID for a field it does not know (it would select everything) and for an id that is none. */
export function filterValues(filter: ParkedFilter): unknown[] {
  const unknown = Object.keys(filter).filter((field) => !(FIELDS as readonly string[]).includes(field));
  if (unknown.length > 0) {
    throw invalid(`The filter has ${unknown.join(', ')}, which it does not know. It knows ${FIELDS.join(', ')}`);
  }
  const noId = filter.ids?.find((id) => !isParkedId(id));
  if (noId !== undefined) {
    throw invalid(
      `${JSON.stringify(noId)} in filter.ids is no id of a parked event: those are decimal numbers, as list() gives them`,
    );
  }
  return FIELDS.map((field) => {
    const value = filter[field];
    return value instanceof Date ? value.toISOString() : (value ?? null);
  });
}

/** For what changes rows. Throws OPTIONS_INVALID for a filter that says nothing: everything is never meant by accident. */
export function chosenValues(filter: ParkedFilter): unknown[] {
  if (FIELDS.every((field) => filter[field] === undefined)) {
    throw invalid(
      'The filter is empty and would mean every parked event. Say which: ids, state, consumer, topic, eventId, errorCode, since or until',
    );
  }
  return filterValues(filter);
}

export function isParkedId(id: unknown): id is string {
  return typeof id === 'string' && /^\d{1,18}$/.test(id);
}

export function invalid(message: string): IdempotencyError {
  return new IdempotencyError('OPTIONS_INVALID', message);
}
