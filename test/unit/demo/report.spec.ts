import { describe, expect, it } from 'vitest';
import { isExact, jsonOf, tableOf, verdictOf, type DemoResult } from '../../../sample/demo/report.js';

const GOOD: DemoResult = {
  sent: 5_000,
  duplicates: 1_000,
  applied: 5_000,
  lost: 0,
  doubled: 0,
  outOfOrder: 0,
  kills: 19,
  skipped: 1_234,
  perSecond: 221.3,
};

describe('isExact', () => {
  it('holds when nothing is lost, doubled or out of order', () => {
    expect(isExact(GOOD)).toBe(true);
  });

  it.each(['lost', 'doubled', 'outOfOrder'] as const)('does not hold with one %s', (figure) => {
    expect(isExact({ ...GOOD, [figure]: 1 })).toBe(false);
  });
});

describe('jsonOf', () => {
  it('is one line with exactly the nine figures, in their order', () => {
    const text = jsonOf({ ...GOOD, more: 1 } as DemoResult);
    expect(text).not.toContain('\n');
    expect(JSON.parse(text)).toEqual(GOOD);
    expect(Object.keys(JSON.parse(text) as object)).toEqual(Object.keys(GOOD));
  });
});

describe('tableOf', () => {
  it('has a line for each figure, the figures under each other', () => {
    const lines = tableOf(GOOD).split('\n');
    expect(
      lines.map((line) =>
        line
          .trim()
          .split(/\s{2,}/)
          .slice(0, 2),
      ),
    ).toEqual([
      ['sent', '5,000'],
      ['duplicates sent', '1,000'],
      ['applied', '5,000'],
      ['lost', '0'],
      ['doubled', '0'],
      ['out of order', '0'],
      ['kills', '19'],
      ['redelivered and skipped', '1,234'],
      ['msg/s', '221.3'],
    ]);
    expect(new Set(lines.map((line) => line.search(/ {3}\S+( \S+)+$/))).size).toBe(1);
  });
});

describe('verdictOf', () => {
  it('is a plain sentence for a good run', () => {
    expect(verdictOf(GOOD)).toBe('Each event changed the database exactly once, in the order of its key.');
  });

  it('says what went wrong, with figures', () => {
    expect(verdictOf({ ...GOOD, lost: 1_200, outOfOrder: 3 })).toBe(
      'NOT exactly once: 1,200 lost, 0 doubled, 3 out of order.',
    );
  });
});
