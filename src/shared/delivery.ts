import { AsyncSlot } from './async-slot.js';
import { IdempotencyError } from './errors.js';
import type { Durability } from './handler-profile.js';
import type { KafkaSends } from './kafka-sends.js';
import type { RowRemoval } from './parking.js';
import type { RecordView, SourceRecord } from './record.js';
import type { SharedTransaction } from './shared-transaction.js';

/**
 * One attempt to get a record handled: one per record, handler and attempt. Read it in a handler with {@link currentDelivery}; in a batch handler that is the delivery of the first
 * event of the array, and {@link BatchContext.getDeliveries} has those of all.
 */
export interface Delivery extends RecordView {
  /** The stable name under which the handler deduplicates. */
  readonly consumer: string;
  /** The event's id once it is known; undefined before that, and for handlers without `@Idempotent`. */
  readonly eventId: string | undefined;
  /** 1 for the first try of this record by this handler in this process. */
  readonly attempt: number;
  /** Aborts on timeout, when the partition is lost, and at shutdown. */
  readonly signal: AbortSignal;
}

/** How a delivery ended. `busy` (another live copy runs it) and `unknown` (COMMIT without an answer) run again and never count as an attempt. */
export type Outcome = 'processed' | 'duplicate' | 'stale' | 'failed' | 'busy' | 'unknown';

/** What the interceptor tells the transport. `error` is the original one, whatever an exception filter makes of it later. */
export type DeliveryReport =
  | { readonly outcome: 'processed' | 'duplicate' | 'stale' }
  | { readonly outcome: 'busy' | 'unknown'; readonly error: unknown }
  | {
      readonly outcome: 'failed';
      readonly error: unknown;
      /** Seen while connecting or on our own connection, and of the kind that no handler can help: the database is away. */
      readonly isOutage?: boolean;
      /** Another record of the transaction it shares had failed before, and it says nothing about this one. */
      readonly isConsequence?: boolean;
    };

/** Resolves when nothing is left of it. */
export interface Discardable {
  discard(): Promise<void>;
}

/**
 * The transport's side of a delivery, and the only place where the consumer and the handler meet:
 * - the consumer creates it and surrounds the handler's subscription with it;
 * - the interceptor says the event id, reports the outcome once, and registers what has to be done when the delivery is killed;
 * - whoever reports first decides: a late report of an abandoned handler changes nothing.
 */
export class DeliveryInProgress implements Delivery, SourceRecord {
  eventId: string | undefined;
  /** Set by the interceptor that takes the delivery, so that one bound twice acts once. */
  taken = false;
  /** It waits for a connection, BEGIN, the claim or the mark: the database, not the handler, takes the time. */
  isOpening = false;
  /** Of a parked event: what has to go in the same transaction. */
  removal: RowRemoval | undefined;
  /** Its transaction was opened: the database has answered. */
  hasTransaction = false;
  /** Of the transaction it runs in; what runs in none of ours is nobody's to wait for. */
  durability: Durability = 'commit';
  /** A request whose handler has ended: what is waited for is the acknowledgement of its reply. */
  isReplying = false;
  /** The handler itself has been called and has not ended. */
  isHandling = false;
  /** The transaction it shares with others; undefined: it gets its own. What it reports of a shared one holds only once that is committed. */
  shared: SharedTransaction | undefined;
  /** Of an exactly-once handler: what it publishes goes there. */
  sends: KafkaSends | undefined;
  /** Right before it commits: the delivery that will follow at once, if there is one. Its claim may go in front, behind that COMMIT. */
  successor: (() => DeliveryInProgress | undefined) | undefined;
  /** What was begun for it in front; whoever does not run it discards that. */
  ahead: Discardable | undefined;
  /** Leaves the mark of the record that runs, if it has to. */
  beforeRun: (() => Promise<void> | undefined) | undefined;
  #report: DeliveryReport | undefined;
  #killed: IdempotencyError | undefined;
  #onKill: ((error: IdempotencyError) => void) | undefined;
  /** Made when a handler asks for the signal: most never do. */
  #abort: AbortController | undefined;
  #abortReason: IdempotencyError | undefined;
  #record: SourceRecord;

  constructor(
    record: SourceRecord,
    readonly consumer: string,
    readonly attempt: number,
  ) {
    this.#record = record;
  }

  /** The deliveries whose handler is called with this one: itself, and those of each record where that is a batch. */
  get members(): readonly DeliveryInProgress[] {
    return [this];
  }

  get topic(): string {
    return this.#record.topic;
  }
  get partition(): number {
    return this.#record.partition;
  }
  get offset(): string {
    return this.#record.offset;
  }
  get timestamp(): Date {
    return this.#record.timestamp;
  }
  get key(): Buffer | null {
    return this.#record.key;
  }
  get value(): Buffer | null {
    return this.#record.value;
  }
  get headers(): ReadonlyMap<string, readonly Buffer[]> {
    return this.#record.headers;
  }
  /** Only to be read: see {@link SourceRecord}. */
  get rawValue(): Buffer | null {
    return this.#record.rawValue;
  }
  rawHeader(name: string): readonly Buffer[] {
    return this.#record.rawHeader(name);
  }
  decoded(): unknown {
    return this.#record.decoded();
  }
  get signal(): AbortSignal {
    if (this.#abort === undefined) {
      this.#abort = new AbortController();
      if (this.#abortReason !== undefined) this.#abort.abort(this.#abortReason);
    }
    return this.#abort.signal;
  }
  get reported(): DeliveryReport | undefined {
    return this.#report;
  }
  get killed(): IdempotencyError | undefined {
    return this.#killed;
  }

  /** What it says of its record is of this one from now on. */
  protected standFor(record: SourceRecord): void {
    this.#record = record;
  }

  report(report: DeliveryReport): void {
    this.#report ??= report;
  }

  /** Tells a cooperative handler to stop; its transaction may still commit (the claim keeps that harmless). */
  abort(reason: IdempotencyError): void {
    this.#abortReason ??= reason;
    this.#abort?.abort(reason);
  }

  /** Ends the delivery by force: the signal aborts and the interceptor destroys the transaction, whatever the handler is doing. */
  kill(error: IdempotencyError): void {
    if (this.#killed !== undefined) return;
    this.#killed = error;
    this.abort(error);
    this.#onKill?.(error);
  }

  /**
   * To be awaited right before the handler is called; undefined: nothing is to be waited for. Throws, also at once, if the delivery was killed or its
   * partition is lost, and whatever the mark throws: then the handler must not begin.
   */
  clearToRun(): Promise<void> | undefined {
    this.#throwIfAborted();
    const marked = this.beforeRun?.();
    return marked === undefined ? undefined : this.#whenMarked(marked);
  }

  async #whenMarked(marked: Promise<void>): Promise<void> {
    this.isOpening = true;
    try {
      await marked;
    } finally {
      this.isOpening = false;
    }
    if (this.#killed !== undefined) {
      const message = 'The database did not take the mark of the running record before the delivery was killed';
      throw new IdempotencyError('DATABASE_UNAVAILABLE', message, { cause: this.#killed, retryable: true });
    }
    this.#throwIfAborted();
  }

  #throwIfAborted(): void {
    const reason = this.#killed ?? this.#abortReason;
    if (reason !== undefined) throw reason;
  }

  /** Its transaction is open. Throws if it was killed meanwhile. */
  opened(): void {
    this.isOpening = false;
    this.hasTransaction = true;
    if (this.#killed !== undefined) throw this.#killed;
  }

  /** Nothing is to be done by kill() any more: what it would have needed is not kept for as long as the transaction it shares goes on. */
  outliveKill(): void {
    this.#onKill = undefined;
  }

  /** What kill() has to do; called at once if the delivery is dead already. */
  onKill(destroy: (error: IdempotencyError) => void): void {
    this.#onKill = destroy;
    if (this.#killed !== undefined) destroy(this.#killed);
  }
}

const slot = new AsyncSlot<DeliveryInProgress>('delivery');

export function runInDelivery<T>(delivery: DeliveryInProgress, work: () => T): T {
  return slot.run(delivery, work);
}

export function deliveryInProgress(): DeliveryInProgress | undefined {
  return slot.current;
}

/** The delivery the running handler belongs to: raw bytes, attempt number, abort signal. `undefined` outside a handler of this package's transport. */
export function currentDelivery(): Delivery | undefined {
  return slot.current;
}
