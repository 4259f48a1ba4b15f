import { describe, expect, it } from 'vitest';
import { progressBar, progressLine } from '../../../sample/demo/progress.js';

const HALF = { elapsedMs: 11_400, events: 5_000, sent: 2_700, applied: 2_500, kills: 1, skipped: 640 };

describe('progressBar', () => {
  it('is as full as events are applied', () => {
    expect(progressBar(HALF)).toBe('  ████████████░░░░░░░░░░░░  50 %  2,700 sent, 2,500 applied, 1 kill, 640 skipped');
  });

  it('is empty before the first and full after the last, and keeps its width also when rows are doubled', () => {
    const bars = [0, 5_000, 9_000].map((applied) => progressBar({ ...HALF, applied }));
    expect(bars.map((bar) => bar.split('█').length - 1)).toEqual([0, 24, 24]);
    expect(bars.map((bar) => bar.indexOf('%'))).toEqual([31, 31, 31]);
  });
});

describe('progressLine', () => {
  it('begins with the seconds gone', () => {
    expect(progressLine({ ...HALF, kills: 9 })).toBe('   11 s  2,700 sent, 2,500 applied, 9 kills, 640 skipped');
  });
});
