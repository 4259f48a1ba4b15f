import { Logger } from '@nestjs/common';
import type { Delivery, DeliveryReport } from '../shared/delivery.js';
import { IdempotencyError, type ErrorCode } from '../shared/errors.js';
import { noteOf } from '../shared/failed-attempt.js';
import type { HandlerSettings } from '../shared/handler-profile.js';
import type { ParkReason } from '../shared/parking.js';
import { errorChain } from '../shared/sql-state.js';

type FailedReport = Extract<DeliveryReport, { outcome: 'failed' }>;

/** What kind of failure it is: `permanent` cannot be helped by another attempt, `transient` may be, `infrastructure` is not the event's. */
export type Failure =
  | { readonly kind: 'permanent'; readonly reason: ParkReason }
  | { readonly kind: 'transient' }
  | { readonly kind: 'infrastructure'; readonly of: 'database' | 'broker' };

/** Codes of ours after which the same bytes cannot do better. */
const PERMANENT: Partial<Record<ErrorCode, ParkReason>> = {
  ID_MISSING: 'missing-id',
  ID_INVALID: 'missing-id',
  DECODE_FAILED: 'decoding',
  VALIDATION_FAILED: 'permanent',
  NON_RETRYABLE: 'permanent',
  PROCESS_DIED: 'process-death',
};

/** Only our own Kafka clients make these. */
const BROKER: readonly ErrorCode[] = ['BROKER_UNAVAILABLE', 'SEND_INCOMPLETE'];

const BAD_REQUEST = 400;

/**
 * Tells the kinds of failure apart. An outage is told by where its error was seen (our own connection, as reported), never by its code alone: a handler
 * whose partner service is down throws the same codes. Then `classify` of the handler's options decides, and where it does not say, these rules.
 */
export function failureOf(report: FailedReport, classify: HandlerSettings['classify'], delivery: Delivery): Failure {
  if (report.isOutage === true) return { kind: 'infrastructure', of: 'database' };
  if (BROKER.some((code) => IdempotencyError.is(report.error, code))) return { kind: 'infrastructure', of: 'broker' };
  const own = permanentReason(report.error);
  if (own === 'process-death') return { kind: 'permanent', reason: own }; // no error a handler threw
  switch (asked(classify, report.error, delivery)) {
    case 'permanent':
      return { kind: 'permanent', reason: own ?? 'permanent' };
    case 'transient':
      return { kind: 'transient' };
    default:
      return own === undefined ? { kind: 'transient' } : { kind: 'permanent', reason: own };
  }
}

/** One that throws, or answers something else, decides nothing. */
function asked(classify: HandlerSettings['classify'], error: unknown, delivery: Delivery): unknown {
  try {
    return classify?.(error, delivery);
  } catch (thrown) {
    new Logger('IdempotentKafkaServer').warn(
      `classify of ${delivery.consumer} threw: ${noteOf(thrown, new Date()).message}`,
    );
    return undefined;
  }
}

function permanentReason(error: unknown): ParkReason | undefined {
  for (const link of errorChain(error)) {
    const reason = IdempotencyError.is(link) ? PERMANENT[link.code] : undefined;
    if (reason !== undefined) return reason;
  }
  return isValidationFailure(error) ? 'permanent' : undefined;
}

/** What Nest's ValidationPipe and other pipes throw for a payload they refuse, or class-validator's own errors. */
function isValidationFailure(error: unknown): boolean {
  try {
    return (
      errorChain(error).some(isBadRequest) ||
      (Array.isArray(error) && error.length > 0 && error.every(isValidationError))
    );
  } catch {
    return false; // getters that throw: then it tells nothing
  }
}

function isBadRequest(error: object): boolean {
  const { getStatus } = error as { getStatus?: unknown };
  return typeof getStatus === 'function' && getStatus.call(error) === BAD_REQUEST;
}

function isValidationError(error: unknown): boolean {
  return typeof error === 'object' && error !== null && 'constraints' in error && 'property' in error;
}
