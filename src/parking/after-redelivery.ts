import { backoffMs } from '../shared/backoff.js';
import type {
  FailedAttempt,
  ParkedSettings,
  ParkReason,
  RedeliveryReport,
  RedeliverySettings,
} from '../shared/parking.js';

/** What becomes of a parked event after a round: its row is to be gone, it comes back uncounted, it comes back later, or it waits for a person. */
export type AfterRedelivery =
  | { readonly step: 'done' }
  | { readonly step: 'again'; readonly error: unknown }
  | {
      readonly step: 'scheduled';
      readonly error: unknown;
      readonly noted: FailedAttempt;
      readonly delayMs: number;
      /** False: one of the tries that every event has in place, which a held one has not had. */
      readonly counts: boolean;
    }
  | { readonly step: 'dead'; readonly error: unknown; readonly noted: FailedAttempt; readonly reason: ParkReason };

/** `rounds`: those begun so far, this one included. `attempts`: those that failed before. */
export function afterRedelivery(
  report: RedeliveryReport,
  tried: { readonly rounds: number; readonly attempts: number },
  settings: Pick<ParkedSettings, 'retry' | 'redelivery'>,
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
      return failed(report, tried, settings, random);
  }
}

function failed(
  { error, failure, noted }: Extract<RedeliveryReport, { outcome: 'failed' }>,
  { rounds, attempts }: { readonly rounds: number; readonly attempts: number },
  { retry, redelivery }: Pick<ParkedSettings, 'retry' | 'redelivery'>,
  random: () => number,
): AfterRedelivery {
  switch (failure) {
    case 'infrastructure':
      return { step: 'again', error };
    case 'permanent':
      return { step: 'dead', error, noted, reason: 'permanent' };
    case 'transient': {
      const again = { step: 'scheduled', error, noted } as const;
      if (attempts + 1 < retry.attempts)
        return { ...again, delayMs: backoffMs(retry, attempts + 1, random), counts: false };
      if (rounds < redelivery.rounds)
        return { ...again, delayMs: backoffMs(redelivery, rounds + 1, random), counts: true };
      return { step: 'dead', error, noted, reason: 'exhausted' };
    }
  }
}

/** A row that comes up with more rounds begun than there are was never settled: the process died in the last one. A held row runs once whatever the cap. */
export function diedInLastRound(rounds: number, settings: RedeliverySettings): boolean {
  return rounds > Math.max(1, settings.rounds);
}
