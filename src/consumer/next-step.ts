import { backoffMs, type Backoff } from '../shared/backoff.js';
import type { DeliveryReport } from '../shared/delivery.js';
import type { ParkReason } from '../shared/parking.js';
import { isRerunnable } from '../shared/sql-state.js';
import type { Failure } from './failure-policy.js';

/** What follows a delivery: the record is final for this consumer, it is delivered again after a wait, or it is parked. */
export type NextStep =
  | { readonly step: 'settle'; readonly duplicate: boolean }
  | { readonly step: 'again'; readonly delayMs: number; readonly counts: boolean }
  | { readonly step: 'park'; readonly reason: ParkReason };

/** How often the record has been tried by this consumer in this process. */
export interface Tries {
  /** Failed attempts, the last one included. */
  readonly failed: number;
  /** Reruns after a serialization failure or deadlock since the last counted attempt. */
  readonly reruns: number;
}

const BUSY_MS = 1000;
const UNKNOWN_MS = 50;
/** A lost connection may be that one's alone. If it is an outage, the wait is {@link Outage}'s. */
const OUTAGE_MS = { database: 100, broker: 1000 };
const RERUNS = 5;
const RERUN_MS = { least: 10, most: 200 };

/**
 * Decides what happens after a delivery:
 * - `busy`, `unknown` and an outage never count, and never park;
 * - 40001 and 40P01 rerun at once, five times, before one counts (PostgreSQL, chapter 13.5: such transactions are to be retried as a whole);
 * - what fails in another way is tried `retry.attempts` times in place, a permanent failure once; then it is parked.
 */
export function nextStep(
  report: DeliveryReport,
  failure: Failure | undefined,
  tries: Tries,
  retry: Backoff & { readonly attempts: number },
  random: () => number = Math.random,
): NextStep {
  switch (report.outcome) {
    case 'processed':
    case 'stale':
      return { step: 'settle', duplicate: false };
    case 'duplicate':
      return { step: 'settle', duplicate: true };
    case 'busy':
      return { step: 'again', delayMs: BUSY_MS, counts: false };
    case 'unknown':
      return { step: 'again', delayMs: UNKNOWN_MS, counts: false };
    case 'failed':
      return afterFailure(report.error, failure ?? { kind: 'transient' }, tries, { retry, random });
  }
}

function afterFailure(
  error: unknown,
  failure: Failure,
  { failed, reruns }: Tries,
  { retry, random }: { retry: Backoff & { readonly attempts: number }; random: () => number },
): NextStep {
  switch (failure.kind) {
    case 'infrastructure':
      return { step: 'again', delayMs: OUTAGE_MS[failure.of], counts: false };
    case 'permanent':
      return { step: 'park', reason: failure.reason };
    case 'transient':
      if (isRerunnable(error) && reruns < RERUNS) {
        const delayMs = RERUN_MS.least + Math.round(random() * (RERUN_MS.most - RERUN_MS.least));
        return { step: 'again', delayMs, counts: false };
      }
      if (failed >= retry.attempts) return { step: 'park', reason: 'exhausted' };
      return { step: 'again', delayMs: backoffMs(retry, failed, random), counts: true };
  }
}
