import { describe, expect, it } from 'vitest';
import { paceFor } from '../../../sample/demo/pace.js';

describe('paceFor', () => {
  it.each([1, 60, 600, 6_000])(
    'lets %i records flow for 22 s, with a kill each second of sessions of 1.5 s',
    (records) => {
      expect(paceFor(records, 500)).toMatchObject({ flowMs: 22_000, killEveryMs: 1_000, sessionMs: 1_500 });
    },
  );

  it('sends no more than a thousand records a second', () => {
    expect(paceFor(60_000, 500).flowMs).toBe(60_000);
  });

  it("takes the broker's shortest session where that is longer, leaves two and a half of them between kills, and has time for three", () => {
    expect(paceFor(6_000, 6_000)).toMatchObject({ flowMs: 52_500, killEveryMs: 15_000, sessionMs: 6_000 });
  });

  it('stops one worker while events flow', () => {
    const { stopAfterMs, flowMs } = paceFor(6_000, 500);
    expect(stopAfterMs).toBeGreaterThan(0);
    expect(stopAfterMs).toBeLessThan(flowMs);
  });
});
