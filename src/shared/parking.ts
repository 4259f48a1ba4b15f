import type { DeliveryReport, Outcome } from './delivery.js';
import type { Backoff } from './backoff.js';
import type { TopicPlace } from './record.js';

/** How a parked event stands: `scheduled` comes back by itself, `dead` waits for a person, `held` waits behind an earlier event of its key, `discarded` is kept so that it is not run again. */
export type ParkedState = 'scheduled' | 'dead' | 'held' | 'discarded';

/** Why an event was parked. */
export type ParkReason =
  'permanent' | 'exhausted' | 'missing-id' | 'decoding' | 'process-death' | 'reused-id' | 'gap' | 'behind';

/** A record as Kafka holds it, for what outlives its delivery. Headers in their order; a header may come more than once, and without a value. */
export interface StoredRecord extends TopicPlace {
  readonly offset: bigint;
  readonly timestamp: Date;
  readonly key: Buffer | null;
  readonly value: Buffer | null;
  readonly headers: readonly (readonly [name: string, value: Buffer | null])[];
}

/** One failed attempt, as the history of a parked event keeps it. Never a payload. */
export interface FailedAttempt {
  readonly at: Date;
  readonly code: string;
  readonly name: string;
  readonly message: string;
}

/** How often, and how far apart, a parked event comes back by itself; after `rounds` it is dead. */
export type RedeliverySettings = Backoff & { readonly rounds: number };

/** What an event is parked with. */
export interface ParkRequest {
  readonly record: StoredRecord;
  readonly consumer: string;
  readonly eventId: string | undefined;
  readonly reason: ParkReason;
  /** The last error, as it was thrown. */
  readonly error: unknown;
  /** Every failed attempt so far, oldest first; at least one. */
  readonly failures: readonly FailedAttempt[];
  readonly attempts: number;
  readonly holdKey: boolean;
  readonly redelivery: RedeliverySettings;
}

/**
 * What is parked of one partition, for as long as the partition is ours:
 * - read once when it was assigned, so that an event nobody parked costs nothing;
 * - it also keeps the mark that tells which record was running when the process died.
 */
export interface PartitionParking {
  /** The process that had this partition before died in it; true until {@link PartitionParking.survived}. */
  readonly isSuspect: boolean;
  /** Something is parked of this partition; while it is false, {@link PartitionParking.gate} need not be asked. */
  readonly hasParked: boolean;
  /** Whether {@link PartitionParking.gate} has something to look at for this record. */
  concerns(request: Pick<ParkRequest, 'record' | 'consumer' | 'holdKey'>): boolean;
  /**
   * What an earlier parking means for this record: undefined (at once, and for nearly all) that it is not concerned. Else `run`; `held`: it is now parked
   * behind an earlier event of its key; `parked`: it is parked already, or was discarded.
   */
  gate(
    request: Pick<ParkRequest, 'record' | 'consumer' | 'eventId' | 'holdKey'>,
  ): Promise<'run' | 'held' | 'parked'> | undefined;
  /** Resolves with the state once the event is parked for good, dead letter included. Rejects with PARK_FAILED or DEAD_LETTER_FAILED: nothing is final then. */
  park(request: ParkRequest): Promise<ParkedState>;
  /** To be awaited before the first record that runs after an assignment. Throws PROCESS_DIED when three processes died on this record; undefined when the mark stands already. */
  mark(offset: bigint): Promise<void> | undefined;
  /** A record has run and the process is alive. */
  survived(): void;
  /** The mark goes: a rebalance begins, or an orderly end. Never rejects. */
  unmark(): Promise<void>;
}

/** Port: the consumer asks the parking room what stands in a partition's way. `from`: the offset it goes on at. To be asked after the join, never before. */
export interface Parking {
  open(places: readonly (TopicPlace & { readonly from: bigint })[]): Promise<PartitionParking[]>;
}

/** What takes a parked event's row away in the transaction that handles the event: 'gone' if somebody changed or took the row meanwhile. */
export interface RowRemoval {
  removeWith(query: (sql: string, parameters: unknown[]) => Promise<unknown>): Promise<'removed' | 'gone'>;
}

/** What the options of a handler say of parked events. */
export interface ParkedSettings {
  readonly timeoutMs: number;
  readonly retry: Backoff & { readonly attempts: number };
  readonly redelivery: RedeliverySettings;
}

/** A parked event to be delivered once to its one consumer. */
export interface ParkedDelivery {
  readonly record: StoredRecord;
  readonly consumer: string;
  /** Kept from the first delivery; undefined: there was none, and the handler's id source is asked. */
  readonly eventId: string | undefined;
  readonly attempt: number;
  readonly removal: RowRemoval;
}

export type RedeliveryReport =
  | Extract<DeliveryReport, { outcome: 'processed' | 'duplicate' | 'stale' }>
  | { readonly outcome: Exclude<Outcome, 'processed' | 'duplicate' | 'stale' | 'failed'>; readonly error: unknown }
  | {
      readonly outcome: 'failed';
      readonly error: unknown;
      readonly failure: 'permanent' | 'transient' | 'infrastructure';
      readonly noted: FailedAttempt;
    };

/** Port: the parking room delivers through the consumer. */
export interface Redelivery {
  /** The consumer names that have a handler here. Empty until the transport listens. */
  readonly consumers: ReadonlyMap<string, ParkedSettings>;
  /** One attempt, in a slot of its own. Never rejects. With `removal` taken in the handler's transaction, or behind it for a handler without one. */
  redeliver(parked: ParkedDelivery): Promise<RedeliveryReport>;
}
