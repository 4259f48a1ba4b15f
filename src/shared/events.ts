import { channel, type Channel } from 'node:diagnostics_channel';
import type { Outcome } from './delivery.js';
import type { ErrorCode } from './errors.js';
import type { ParkedState, ParkReason } from './parking.js';

/** Where an event of this package happened. Never a payload; the record's key is not here either. */
export interface EventPlace {
  readonly topic: string;
  readonly partition: number;
  readonly offset: string;
  readonly consumer: string;
  readonly eventId: string | undefined;
  readonly attempt: number;
}

type Partitions = readonly { readonly topic: string; readonly partition: number; readonly offset: string }[];

/**
 * Everything this package tells about its work. `handled`: the handler has settled and COMMIT is not sent yet; `processed`: COMMIT was acknowledged;
 * `committing` and `committed`: offsets sent and acknowledged; `relayed`: Kafka has acknowledged messages of the outbox, whose rows are not deleted yet; `unsent`: a
 * row of the outbox was parked; `pruned`: rows were deleted because of their age; `unreplicated`: a commit on a connection of the DataSource was acknowledged, but its
 * wait for a synchronous standby was cancelled.
 */
export type IdempotencyEvent =
  | ({ readonly name: 'received' | 'claimed' | 'handled' | 'processed' | 'duplicate' | 'stale' } & EventPlace)
  | ({ readonly name: 'failed' | 'busy' | 'unknown'; readonly error: unknown } & EventPlace)
  | ({ readonly name: 'retried'; readonly error: unknown; readonly delayMs: number } & EventPlace)
  | ({
      readonly name: 'parked';
      readonly state: ParkedState;
      readonly reason: ParkReason;
      readonly error?: unknown;
    } & EventPlace)
  | ({ readonly name: 'replayed'; readonly outcome: Outcome; readonly by: string } & EventPlace)
  | ({ readonly name: 'discarded'; readonly by: string; readonly why: string } & EventPlace)
  | { readonly name: 'committing' | 'committed'; readonly offsets: Partitions }
  | { readonly name: 'assigned'; readonly groupId: string; readonly memberId: string; readonly partitions: Partitions }
  | {
      readonly name: 'revoked';
      readonly groupId: string;
      readonly partitions: readonly { readonly topic: string; readonly partition: number }[];
    }
  | {
      readonly name: 'gap';
      readonly topic: string;
      readonly partition: number;
      readonly from: string;
      readonly to: string;
    }
  | { readonly name: 'relayed'; readonly messages: number }
  | {
      readonly name: 'unsent';
      readonly id: string;
      readonly topic: string;
      readonly eventId: string;
      readonly attempts: number;
      readonly error: unknown;
    }
  | { readonly name: 'pruned'; readonly table: string; readonly rows: number }
  | { readonly name: 'unreplicated'; readonly detail: string }
  | { readonly name: 'outage' | 'recovered'; readonly code: ErrorCode; readonly detail: string }
  | { readonly name: 'escaped'; readonly owner: string; readonly detail: string };

/** The place of an event, read off its delivery. */
export function placeOf(delivery: EventPlace): EventPlace {
  const { topic, partition, offset, consumer, eventId, attempt } = delivery;
  return { topic, partition, offset, consumer, eventId, attempt };
}

/** Emits an event that tells no more than its place: several for every record, so they are not made where nobody listens. */
export function emitAt(
  emit: EmitEvent,
  name: 'received' | 'claimed' | 'handled' | 'processed' | 'duplicate',
  delivery: EventPlace,
): void {
  if (emit.isHeard?.(name) === false) return;
  const { topic, partition, offset, consumer, eventId, attempt } = delivery;
  emit({ name, topic, partition, offset, consumer, eventId, attempt });
}

export type EventName = IdempotencyEvent['name'];

/** What rooms emit through; made by the observability room. A listener that throws must never change a delivery. */
export interface EmitEvent {
  (event: IdempotencyEvent): void;
  /** False: nobody listens to events of that name now. */
  readonly isHeard?: (name: EventName) => boolean;
}

const channels = new Map<string, Channel>();

/** The diagnostics_channel on which events of that name are published, synchronously: `nestjs-kafka-idempotency:NAME`. */
export function eventChannel(name: EventName): Channel {
  let found = channels.get(name);
  if (found === undefined) channels.set(name, (found = channel(`nestjs-kafka-idempotency:${name}`)));
  return found;
}
