import type { Backoff } from './backoff.js';
import type { Delivery } from './delivery.js';
import type { RedeliverySettings } from './parking.js';
import type { RecordView } from './record.js';

/** When a COMMIT is acknowledged: on disk, or before that, to be followed by a barrier. */
export type Durability = 'commit' | 'window';

export type Isolation = 'READ COMMITTED' | 'REPEATABLE READ' | 'SERIALIZABLE';

/** How a record's value becomes the handler's payload. */
export type Decode = 'json' | 'text' | 'bytes' | ((record: RecordView) => unknown);

/** What the consumer and the handler room need to know of one handler: its options with every default filled in. */
export interface HandlerSettings {
  readonly timeoutMs: number;
  readonly retry: Backoff & { readonly attempts: number };
  readonly classify: ((error: unknown, delivery: Delivery) => 'permanent' | 'transient' | undefined) | undefined;
  readonly decode: Decode;
  readonly isolation: Isolation;
  /** Later events of a parked key wait behind it. */
  readonly holdKey: boolean;
  readonly redelivery: RedeliverySettings;
  /** So many records may share a transaction. */
  readonly messagesPerTransaction: number;
  readonly durability: Durability;
}

export interface BatchSettings {
  /** How long a batch that is not full waits for more records. */
  readonly maxWaitMs: number;
}

/** One handler method of the application, under the name it deduplicates by. */
export interface HandlerProfile {
  readonly consumer: string;
  /** What is committed with its effects: the claim, by `@Idempotent()`, or the offset, by `@KafkaExactlyOnce()`; 'none': neither. The interceptor of both must report every delivery. */
  readonly transaction: 'database' | 'kafka' | 'none';
  /** Called once for several records. Their most is `settings.messagesPerTransaction`. */
  readonly batch: BatchSettings | undefined;
  readonly settings: HandlerSettings;
  /** The event id of a record that is not delivered; undefined: it has none that may be used, or the handler needs none. */
  readonly eventIdOf: (record: RecordView) => string | undefined;
}

/** Port: the consumer asks the handler room what a registered handler is. `extras` is the object that Nest hands to `addHandler` for its method. */
export interface HandlerProfiles {
  profileOf(extras: object): HandlerProfile | undefined;
}
