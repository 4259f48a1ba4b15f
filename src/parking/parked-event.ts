import type { Outcome } from '../shared/delivery.js';
import type { ParkedState, ParkReason } from '../shared/parking.js';

/** What a parked event went through, oldest first: failed attempts, replays, edits, and why it was discarded. */
export type ParkedHistoryEntry =
  | { readonly at: string; readonly code: string; readonly name: string; readonly message: string }
  | { readonly at: string; readonly by: string; readonly outcome: Outcome }
  | { readonly at: string; readonly by: string; readonly edited: readonly ('value' | 'headers')[] }
  | { readonly at: string; readonly by: string; readonly why: string };

/** A parked event as people and tools see it: the record's bytes as they came, and what happened to it. */
export interface ParkedEvent {
  readonly id: string;
  readonly state: ParkedState;
  readonly consumer: string;
  readonly groupId: string;
  readonly topic: string;
  readonly partition: number;
  /** A decimal string. */
  readonly recordOffset: string;
  readonly recordTimestamp: Date;
  readonly eventId: string | null;
  readonly recordKey: Buffer | null;
  readonly recordValue: Buffer | null;
  /** In the record's order; a header may come more than once, and without a value. */
  readonly headers: readonly (readonly [name: string, value: Buffer | null])[];
  /** By what later events are held; null: none are. */
  readonly holdKey: Buffer | null;
  readonly reason: ParkReason;
  readonly errorCode: string | null;
  readonly errorName: string | null;
  readonly errorMessage: string | null;
  /** Failed ones, redeliveries and replays included. */
  readonly attempts: number;
  /** Redeliveries begun. */
  readonly rounds: number;
  readonly replays: number;
  readonly history: readonly ParkedHistoryEntry[];
  /** What is delivered in the value's place. */
  readonly editedValue: Buffer | null;
  /** Raised by every change. */
  readonly version: number;
  /** Of a scheduled event: when it comes back. Of a discarded one: when it was discarded. */
  readonly dueAt: Date | null;
  readonly firstFailedAt: Date | null;
  readonly lastFailedAt: Date | null;
  readonly parkedAt: Date;
}
