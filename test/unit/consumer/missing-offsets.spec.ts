import { expect, test } from 'vitest';
import { forgottenOffsets, standsIn } from '#src/consumer/missing-offsets.js';
import type { Positions } from '#src/kafka/cluster-reader.js';

const place = (partition: number, topic = 'orders') => ({ topic, partition });
const positions = (committed: Record<string, bigint>, bounds: Record<string, [bigint, bigint]>): Positions => ({
  committed: new Map(Object.entries(committed)),
  bounds: new Map(Object.entries(bounds).map(([key, [low, high]]) => [key, { low, high }])),
});
const handled =
  (...topics: string[]) =>
  (asked: readonly string[]) =>
    Promise.resolve(new Set(topics.filter((topic) => asked.includes(topic))));
const never = () => Promise.reject(new Error('nobody needs the database for this'));

test('F46 a group without offsets in a topic whose events have been handled has lost them, where there are records', async () => {
  const known = positions({}, { '0/orders': [0n, 9n], '1/orders': [4n, 4n] });
  expect(await forgottenOffsets([place(0), place(1)], known, handled('orders'))).toEqual(new Set(['0/orders']));
});

test('a topic of which nothing was handled is new to the group', async () => {
  const known = positions({ '0/other': 3n }, { '0/orders': [0n, 9n], '0/other': [0n, 3n] });
  expect(await forgottenOffsets([place(0)], known, handled('other'))).toEqual(new Set());
});

test('F48 a partition that was added to a topic the group stands in is new, and costs no query', async () => {
  const known = positions({ '0/orders': 3n }, { '0/orders': [0n, 9n], '1/orders': [0n, 9n] });
  expect(await forgottenOffsets([place(1)], known, never)).toEqual(new Set());
  expect(standsIn('orders', known)).toBe(true);
});
