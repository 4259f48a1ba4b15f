import { describe, expect, it } from 'vitest';
import { afterRedelivery, diedInLastRound } from '#src/parking/after-redelivery.js';
import { noteOf } from '#src/shared/failed-attempt.js';

const redelivery = { rounds: 3, delayMs: 100, factor: 6, maxDelayMs: 3000, jitter: 'none' } as const;
const retry = { attempts: 3, delayMs: 10, factor: 2, maxDelayMs: 1000, jitter: 'none' } as const;
const settings = { redelivery, retry };
const after = (rounds: number, attempts = 3) => ({ rounds, attempts });
const error = new Error('no');
const noted = noteOf(error, new Date(0));
const failed = (failure: 'permanent' | 'transient' | 'infrastructure') =>
  ({ outcome: 'failed', failure, error, noted }) as const;

describe('after a round', () => {
  it.each(['processed', 'duplicate', 'stale'] as const)('that ended as %s the event is done', (outcome) => {
    expect(afterRedelivery({ outcome }, after(3), settings)).toEqual({ step: 'done' });
  });

  it.each(['busy', 'unknown'] as const)('that ended as %s it comes again, uncounted', (outcome) => {
    expect(afterRedelivery({ outcome, error }, after(3), settings)).toEqual({ step: 'again', error });
  });

  it('that met an outage it comes again, uncounted', () => {
    expect(afterRedelivery(failed('infrastructure'), after(3), settings)).toEqual({ step: 'again', error });
  });

  it('that no further one can help it is dead at once', () => {
    expect(afterRedelivery(failed('permanent'), after(1), settings)).toMatchObject({
      step: 'dead',
      reason: 'permanent',
    });
  });

  it('that failed it comes later and later, and after the last one it is dead', () => {
    const steps = [1, 2, 3].map((rounds) => afterRedelivery(failed('transient'), after(rounds), settings));
    expect(steps).toMatchObject([
      { step: 'scheduled', delayMs: 600 },
      { step: 'scheduled', delayMs: 3000 },
      { step: 'dead', reason: 'exhausted', noted },
    ]);
  });

  it('a held event has the tries of any other first, with their waits, and they are no rounds', () => {
    const none = { retry, redelivery: { ...redelivery, rounds: 0 } };
    expect(diedInLastRound(1, none.redelivery)).toBe(false);
    expect(diedInLastRound(2, none.redelivery)).toBe(true);
    const steps = [0, 1, 2].map((attempts) => afterRedelivery(failed('transient'), after(1, attempts), none));
    expect(steps).toMatchObject([
      { step: 'scheduled', delayMs: 10, counts: false },
      { step: 'scheduled', delayMs: 20, counts: false },
      { step: 'dead', reason: 'exhausted' },
    ]);
  });

  it('that no process has survived to tell it is dead when there are no more', () => {
    expect([1, 2, 3, 4].map((rounds) => diedInLastRound(rounds, redelivery))).toEqual([false, false, false, true]);
  });
});
