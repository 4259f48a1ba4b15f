import type { RecordView } from '#src/shared/record.js';
import { IdempotencyError } from '#src/shared/errors.js';

export interface RecordParts {
  readonly headers?: Readonly<Record<string, string | Buffer | readonly (string | Buffer)[]>>;
  readonly key?: string | Buffer | null;
  readonly value?: string | Buffer | null;
  /** What `decoded()` gives. Default the value parsed as JSON. */
  readonly decoded?: unknown;
  readonly topic?: string;
  readonly partition?: number;
  readonly offset?: string;
  readonly timestamp?: Date;
}

/** A record as the consumer would hand it over. */
export function record(parts: RecordParts = {}): RecordView {
  const value = bytes(parts.value ?? null);
  return {
    topic: parts.topic ?? 'orders',
    partition: parts.partition ?? 3,
    offset: parts.offset ?? '42',
    timestamp: parts.timestamp ?? new Date(1_700_000_000_000),
    key: bytes(parts.key ?? null),
    value,
    headers: new Map(
      Object.entries(parts.headers ?? {}).map(([name, values]) => [
        name,
        [values].flat().map((one) => Buffer.from(one as Buffer)),
      ]),
    ),
    decoded: () => ('decoded' in parts ? parts.decoded : value === null ? null : JSON.parse(value.toString('utf8'))),
  };
}

/** What a call throws; a call that returns is a failure. */
export function thrown(call: () => unknown): IdempotencyError {
  try {
    call();
  } catch (error) {
    if (IdempotencyError.is(error)) return error;
    throw error;
  }
  throw new Error('Expected an IdempotencyError, and nothing was thrown');
}

function bytes(value: string | Buffer | null): Buffer | null {
  return typeof value === 'string' ? Buffer.from(value, 'utf8') : value;
}
