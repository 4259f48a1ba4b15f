import { backoffMs } from '../shared/backoff.js';
import type { FailedAttempt, ParkReason, RedeliveryReport, RedeliverySettings } from '../shared/parking.js';

/** What becomes of a parked event after a round: its row is to be gone, it comes back uncounted, it comes back later, or it waits for a person. */
export type AfterRedelivery =
  | { readonly step: 'done' }
  | { readonly step: 'again'; readonly error: unknown }
  | { readonly step: 'scheduled'; readonly error: unknown; readonly noted: FailedAttempt; readonly delayMs: number }
  | { readonly step: 'dead'; readonly error: unknown; readonly noted: FailedAttempt; readonly reason: ParkReason };

/** `rounds`: those begun so far, this one included. */
export function afterRedelivery(
  report: RedeliveryReport,
  rounds: number,
  settings: RedeliverySettings,
  random: () => number = Math.random,
): AfterRedelivery {
  switch (report.outcome) {
    case 'processed':
    case 'duplicate':
    case 'stale':
      return { step: 'done' };
    case 'busy':
    case 'unknown':
      return { step: 'again', error: report.error };
    case 'failed':
      return failed(report, rounds, settings, random);
  }
}

function failed(
  { error, failure, noted }: Extract<RedeliveryReport, { outcome: 'failed' }>,
  rounds: number,
  settings: RedeliverySettings,
  random: () => number,
): AfterRedelivery {
  switch (failure) {
    case 'infrastructure':
      return { step: 'again', error };
    case 'permanent':
      return { step: 'dead', error, noted, reason: 'permanent' };
    case 'transient':
      return rounds < settings.rounds
        ? { step: 'scheduled', error, noted, delayMs: backoffMs(settings, rounds + 1, random) }
        : { step: 'dead', error, noted, reason: 'exhausted' };
  }
}

/** A row that comes up with more rounds begun than there are was never settled: the process died in the last one. A held row runs once whatever the cap. */
export function diedInLastRound(rounds: number, settings: RedeliverySettings): boolean {
  return rounds > Math.max(1, settings.rounds);
}
