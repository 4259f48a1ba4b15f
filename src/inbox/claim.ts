import { limitedInsert, limitedInserts, type LimitedInsert } from '../transaction/limited-insert.js';
import { numberArray, textArray } from './array-literal.js';

/** What one `processed_events` row says: which consumer handled which event, and where it stood. */
export interface Claim {
  readonly consumer: string;
  readonly eventId: string;
  readonly topic: string;
  readonly partition: number;
  /** The record's offset, a decimal string. */
  readonly offset: string;
  /** Of the record's value: a signed bigint as a decimal string. */
  readonly fingerprint: string;
}

const COLUMNS = '(consumer, event_id, topic, partition, record_offset, fingerprint)';

/**
 * The claim of one event, to be run in the handler's transaction. The row count alone decides: 1, the event is ours to handle; 0, it is a duplicate.
 * It waits for another open transaction that holds the same claim, at most `lockTimeoutMs`, and gives 0 or 1 as that one commits or rolls back. Raw SQL on
 * purpose: an ORM's insert fills in identifiers for a row that was ignored, and calls the application's entity subscribers.
 */
export function claimStatement(table: string, lockTimeoutMs: number): LimitedInsert {
  return limitedInsert({
    into: `${table} ${COLUMNS}`,
    row: '$1, $2, $3, $4, $5, $6',
    lockTimeoutMs,
  });
}

/** The values of {@link claimStatement}, in its order. */
export function claimValues(claim: Claim): [string, string, string, number, string, string] {
  return [claim.consumer, claim.eventId, claim.topic, claim.partition, claim.offset, claim.fingerprint];
}

/**
 * The claims of several events of one partition: `true` if all are ours to handle, as most often, else `[consumer, offset]` of each that is. Ordered, so that two of these
 * never deadlock, and by the id first, for in the names of consumers a sort finds no difference; of an id that comes twice the record that stands first gets the claim.
 */
export function claimsStatement(table: string, lockTimeoutMs: number): LimitedInsert {
  return limitedInserts({
    into: `${table} ${COLUMNS}`,
    source: (limited) =>
      'SELECT consumer, event_id, $1, $2::integer, record_offset, fingerprint FROM unnest($3::text[], $4::text[], $5::bigint[], $6::bigint[]) AS claim (consumer, event_id, record_offset, fingerprint) ' +
      `WHERE ${limited} ORDER BY event_id COLLATE "C", consumer COLLATE "C", record_offset`,
    count: 'cardinality($4::text[])',
    returning: 'consumer, record_offset',
    told: 'json_build_array(consumer, record_offset::text)',
    lockTimeoutMs,
  });
}

/** Takes claims of {@link claimsStatement} back, with the same values. One that another record made stays. */
export function releaseStatement(table: string): string {
  return (
    `DELETE FROM ${table} AS made USING unnest($3::text[], $4::text[], $5::bigint[], $6::bigint[]) AS claim (consumer, event_id, record_offset, fingerprint) ` +
    'WHERE made.consumer = claim.consumer AND made.event_id = claim.event_id AND made.record_offset = claim.record_offset AND made.topic = $1 AND made.partition = $2'
  );
}

/** What {@link claimsStatement} answers. */
export type Claimed = true | readonly (readonly [consumer: string, offset: string])[];

/** The values of {@link claimsStatement}, in its order; all claims are of one partition. */
export function claimsValues(claims: readonly Claim[]): unknown[] {
  return [
    claims[0]?.topic,
    claims[0]?.partition,
    textArray(claims.map(({ consumer }) => consumer)),
    textArray(claims.map(({ eventId }) => eventId)),
    numberArray(claims.map(({ offset }) => offset)),
    numberArray(claims.map(({ fingerprint }) => fingerprint)),
  ];
}
