import { backoffMs, type Backoff } from '../shared/backoff.js';
import type { DeliveryReport } from '../shared/delivery.js';
import { isSerializationFailure } from '../shared/sql-state.js';

/** What follows a delivery: the record is final for this consumer, or it is delivered again after a wait. */
export type NextStep =
  | { readonly step: 'settle'; readonly duplicate: boolean }
  | { readonly step: 'again'; readonly delayMs: number; readonly counts: boolean };

/** How often the record has been tried by this consumer in this process. */
export interface Tries {
  /** Failed attempts, the last one included. */
  readonly failed: number;
  /** Reruns after a serialization failure or deadlock since the last counted attempt. */
  readonly reruns: number;
}

const BUSY_MS = 1000;
const UNKNOWN_MS = 50;
const RERUNS = 5;
const RERUN_MS = { least: 10, most: 200 };

/**
 * Decides what happens after a delivery. A failing record stays in front of its partition and is tried again for as long as it takes. `busy`
 * and `unknown` never count as attempts; 40001 and 40P01 rerun at once, five times, before one counts (PostgreSQL, chapter 13.5: such
 * transactions are to be retried as a whole).
 */
export function nextStep(
  report: DeliveryReport,
  tries: Tries,
  retry: Backoff,
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
      if (isSerializationFailure(report.error) && tries.reruns < RERUNS) {
        return {
          step: 'again',
          delayMs: RERUN_MS.least + Math.round(random() * (RERUN_MS.most - RERUN_MS.least)),
          counts: false,
        };
      }
      return { step: 'again', delayMs: backoffMs(retry, tries.failed, random), counts: true };
  }
}
