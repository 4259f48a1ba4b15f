import { expect, test } from 'vitest';
import { markdown, median } from '../../bench/figures.js';
import { ownCpuMicros, rowOf, tableOf } from '../../bench/table.js';

const runs = (...pairs: [perSecond: number, cpu: number][]) =>
  pairs.map(([perSecond, cpuMicrosPerEvent]) => ({ perSecond, cpuMicrosPerEvent }));
const ROUNDS = new Map([
  ['hand-message', runs([1000, 200], [2000, 210], [500, 260])],
  ['ours-default', runs([1500, 230], [2000, 260], [400, 280])],
]);

test('a median is the middle one, or lies between the middle two', () => {
  expect(median([3, 10, 1])).toBe(3);
  expect(median([4, 1, 10, 2])).toBe(3);
});

test('a ratio is the median of the ratios of each round, not the ratio of the medians', () => {
  expect(rowOf('ours-default', 'hand-message', ROUNDS)).toEqual({
    id: 'ours-default',
    perSecond: 1500,
    against: 'hand-message',
    ratio: 1,
    runs: [1500, 2000, 400],
    cpuMicrosPerEvent: 260,
    ok: true,
  });
});

test('a row whose counterpart was not measured has no ratio', () => {
  expect(rowOf('ours-default', 'ours-window', ROUNDS).ratio).toBeNull();
  expect(rowOf('ours-default', null, ROUNDS).ratio).toBeNull();
});

test('own CPU is the median of what the default takes more than the hand-written loop in the same round', () => {
  expect(ownCpuMicros(ROUNDS)).toBe(30);
  expect(ownCpuMicros(new Map([['ours-default', runs([1, 1])]]))).toBeNull();
});

test('tables are Markdown, and what has no value is a dash', () => {
  expect(markdown(['a', 'b'], [[1, null]])).toBe('| a | b |\n| --- | --- |\n| 1 | – |');
  expect(tableOf([rowOf('hand-message', null, ROUNDS)])).toContain(
    '| hand-message | 1000 | – | – | 210 | 1000, 2000, 500 |',
  );
});
