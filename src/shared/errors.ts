/** Every code an {@link IdempotencyError} can carry. Each has its heading in docs/errors.md; a test compares both lists. */
export const ERROR_CODES = [
  // Start
  'OPTIONS_INVALID',
  'ALREADY_CONFIGURED',
  'CONSUMER_NAME_MISSING',
  'CONSUMER_NAME_TAKEN',
  'TRANSPORT_MISSING',
  'REQUEST_NOT_REPLAYABLE',
  'POOL_TOO_SMALL',
  'DATA_SOURCE_NOT_FOUND',
  'DATABASE_UNSUITABLE',
  'SCHEMA_MISSING',
  'SCHEMA_MISMATCH',
  'TOPIC_MISSING',
  // Record
  'ID_MISSING',
  'ID_INVALID',
  'DECODE_FAILED',
  'VALIDATION_FAILED',
  'NO_HANDLER',
  'CODEC_MISSING',
  'BATCH_TOO_LARGE',
  // Handler
  'HANDLER_FAILED',
  'HANDLER_TIMEOUT',
  'HANDLER_RETRYING',
  'NON_RETRYABLE',
  'BATCH_ITEM_FAILED',
  'PROCESS_DIED',
  // Transaction
  'CLAIM_BUSY',
  'COMMIT_UNKNOWN',
  'COMMIT_UNREPLICATED',
  'TRANSACTION_ABORTED',
  'TRANSACTION_ENDED',
  'QUERY_IN_FLIGHT',
  'HAND_MADE_COMMIT',
  'NESTED_ISOLATION',
  'OUTSIDE_TRANSACTION',
  'SERIALIZATION_FAILED',
  // Delivery
  'PARTITION_LOST',
  'OFFSET_COMMIT_REFUSED',
  'OFFSET_OUT_OF_RANGE',
  'CONSUMER_CRASHED',
  'SHUTDOWN_DEADLINE',
  'READ_STALLED',
  // Outage
  'DATABASE_UNAVAILABLE',
  'BROKER_UNAVAILABLE',
  // Parking
  'PARK_FAILED',
  'DEAD_LETTER_FAILED',
  'PARKED_NOT_FOUND',
  'PARKED_CHANGED',
  // Sending
  'NO_TRANSACTION',
  'VALUE_NOT_SERIALIZABLE',
  'MESSAGE_TOO_LARGE',
  'SEND_INCOMPLETE',
  'LEASE_LOST',
  'PRODUCER_FENCED',
] as const;

export type ErrorCode = (typeof ERROR_CODES)[number];

const BRAND = Symbol.for('nestjs-kafka-idempotency:error');

/** What is known about the place an error happened, beside its code. Never a payload. */
export interface ErrorFacts {
  readonly consumer?: string;
  readonly topic?: string;
  readonly partition?: number;
  readonly offset?: string;
  readonly eventId?: string;
}

/**
 * The one error class of this package. `code` says which rule was broken, `retryable` whether the same call can succeed later unchanged,
 * `cause` what was caught. Recognise it with {@link IdempotencyError.is}: it also knows errors made by another copy of the package.
 */
export class IdempotencyError extends Error {
  override readonly name = 'IdempotencyError';
  readonly code: ErrorCode;
  readonly retryable: boolean;
  readonly facts: ErrorFacts;

  constructor(
    code: ErrorCode,
    message: string,
    details: { cause?: unknown; retryable?: boolean; facts?: ErrorFacts } = {},
  ) {
    super(`${message} (${code})`, details.cause === undefined ? undefined : { cause: details.cause });
    this.code = code;
    this.retryable = details.retryable ?? false;
    this.facts = details.facts ?? {};
    Object.defineProperty(this, BRAND, { value: true });
  }

  /** Of any copy of the package. Never throws, whatever it is asked about. */
  static is(error: unknown, code?: ErrorCode): error is IdempotencyError {
    if (error === undefined || error === null) return false; // asked for each delivery: what the catch below costs is more than all else
    try {
      const { [BRAND]: isOurs, code: its } = error as Record<string | symbol, unknown>;
      return isOurs === true && (code === undefined || its === code);
    } catch {
      return false; // something whose getters throw
    }
  }
}

/** Throw it (or give it as the `cause` of what you throw) when no further attempt can help: the event is parked at once. */
export class NonRetryableError extends IdempotencyError {
  constructor(message: string, details: { cause?: unknown } = {}) {
    super('NON_RETRYABLE', message, details);
  }
}

/**
 * Throw it in an `@IdempotentBatch()` handler to name the item that failed, by its index in the array: that event is tried alone, the others together without it. An index that is
 * not in the array names nothing.
 */
export class BatchItemError extends IdempotencyError {
  readonly index: number;

  constructor(index: number, details: { cause?: unknown } = {}) {
    const { cause } = details;
    const why = cause instanceof Error ? `: ${cause.message}` : '';
    super('BATCH_ITEM_FAILED', `Item ${index} of the batch failed${why}`, { ...details, retryable: true });
    this.index = index;
  }
}
