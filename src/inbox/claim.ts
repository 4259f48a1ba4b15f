import { limitedInsert, type LimitedInsert } from '../transaction/limited-insert.js';

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

/**
 * The claim of one event, to be run in the handler's transaction. The row count alone decides: 1, the event is ours to handle; 0, it is a duplicate.
 * It waits for another open transaction that holds the same claim, at most `lockTimeoutMs`, and gives 0 or 1 as that one commits or rolls back. Raw SQL on
 * purpose: an ORM's insert fills in identifiers for a row that was ignored, and calls the application's entity subscribers.
 */
export function claimStatement(table: string, lockTimeoutMs: number): LimitedInsert {
  return limitedInsert({
    into: `${table} (consumer, event_id, topic, partition, record_offset, fingerprint)`,
    row: '$1, $2, $3, $4, $5, $6',
    lockTimeoutMs,
  });
}

/** The values of {@link claimStatement}, in its order. */
export function claimValues(claim: Claim): [string, string, string, number, string, string] {
  return [claim.consumer, claim.eventId, claim.topic, claim.partition, claim.offset, claim.fingerprint];
}
