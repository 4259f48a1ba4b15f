import * as library from 'nestjs-kafka-idempotency';

/** Poison records need somewhere to go. */
export const HAS_PARKING = 'ParkedEvents' in library;

/** Handlers publish, in their transactions, and workers relay. */
export const HAS_OUTBOX = 'EventPublisher' in library;

export const PARTITIONS = 6;
export const KEYS = 60;
export const WORKERS = 4;

/** The two kinds of handlers. */
export const CONSUMERS = [
  { consumer: 'soak.plain', topic: 'soak.plain', holdKey: false },
  { consumer: 'soak.held', topic: 'soak.held', holdKey: true },
] as const;

/** Where the handlers' own events go, one for each effect. */
export const OUTPUT_TOPIC = 'soak.output';

/** Where the inputs of a job go that is killed again and again. */
export const IMPORT_TOPIC = 'soak.imports';

/** What is told of an effect; its key is that of `consumer/key`. */
export interface SoakOutput {
  readonly consumer: string;
  readonly id: string;
}

/** What a handler gets. */
export interface SoakEvent {
  readonly id: string;
  readonly key: string;
  /** Which of its key: 1, 2, 3, … in the order in which they are first sent. */
  readonly seq: number;
  /** So many first attempts fail. */
  readonly failures?: number;
  /** Every attempt fails, until the cause is mended at the end of the run. */
  readonly poison?: boolean;
}

/** For one attempt at a handler; above the time of a bad network, below PostgreSQL's patience. */
export const HANDLER_TIMEOUT_MS = 5_000;
/** After this PostgreSQL ends the session of a client that has gone silent in a transaction, and its claim is free. */
export const IDLE_IN_TRANSACTION_MS = 8_000;
