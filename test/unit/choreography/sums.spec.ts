import { expect, test } from 'vitest';
import { readArguments } from '../../../sample/02-choreography/demo/arguments.js';
import { isExact, tableOf, verdictOf, type ChoreographyResult } from '../../../sample/02-choreography/demo/report.js';
import { sumOf } from '../../../sample/02-choreography/demo/sums.js';

const taken = new Map([
  ['a', 100],
  ['b', 250],
]);
const right = [
  { orderId: 'b', cents: 250 },
  { orderId: 'a', cents: 100 },
];

function resultWith(payments: typeof right): ChoreographyResult {
  const good = sumOf(taken, right);
  return {
    taken: 2,
    cents: 350,
    repeated: 1,
    orders: good,
    payments: sumOf(taken, payments),
    shipments: good,
    shipped: good,
    records: 7,
    kills: { shop: 1, warehouse: 2 },
    skipped: 3,
  };
}

test('each order once, with its amount, is exact, whatever the order of the rows', () => {
  const result = resultWith(right);
  expect(isExact(result)).toBe(true);
  expect(verdictOf(result)).toMatch(/^Each order has exactly one/);
  expect(tableOf(result)).toContain('1 of them copies');
});

test.each([
  ['a missing row', [right[0]!], 'payments: 1 missing, 0 too many'],
  ['a second row', [...right, right[0]!], 'payments: 0 missing, 1 too many'],
  ['a second row instead of another order’s, of its amount', [right[0]!, right[0]!], '1 missing, 1 too many'],
  ['another amount', [right[0]!, { orderId: 'a', cents: 99 }], '0 missing, 1 too many'],
  ['a row of nobody’s order', [...right, { orderId: 'x', cents: 1 }], '0 missing, 1 too many'],
])('%s is told', (_, payments, told) => {
  const result = resultWith(payments);
  expect(isExact(result)).toBe(false);
  expect(verdictOf(result)).toContain(told);
});

test('wrong arguments are told with the usage', () => {
  expect(readArguments([])).toEqual({ kind: 'run', orders: 1000, json: false });
  expect(readArguments(['--orders', '50', '--json'])).toEqual({ kind: 'run', orders: 50, json: true });
  for (const args of [
    ['--orders', 'x'],
    ['--orders', '1'],
    ['--order', '5'],
  ])
    expect(readArguments(args)).toMatchObject({ kind: 'wrong' });
});
