import { expect, test } from 'vitest';
import fc from 'fast-check';
import { KeyQueues } from '#src/consumer/key-queues.js';

interface Item {
  readonly offset: bigint;
  readonly key: number;
}

const queues = (): KeyQueues<Item> => new KeyQueues<Item>(({ key }) => key);

test('of one key the next begins when the one before it has ended, while other keys go on', () => {
  const [a1, b1, a2] = [
    { offset: 1n, key: 1 },
    { offset: 2n, key: 2 },
    { offset: 3n, key: 1 },
  ];
  const waiting = queues();
  for (const item of [a1, b1, a2]) waiting.push(item);
  expect([waiting.begin(), waiting.begin(), waiting.begin()]).toEqual([a1, b1, undefined]);
  waiting.end(b1);
  expect(waiting.begin()).toBeUndefined();
  waiting.end(a1);
  expect(waiting.begin()).toBe(a2);
});

test('what ends together with the one that has begun has not to begin, and the next of the key may', () => {
  const items = [1n, 2n, 3n, 4n].map((offset) => ({ offset, key: 1 }));
  const waiting = queues();
  for (const item of items) waiting.push(item);
  waiting.begin();
  waiting.endWith(items[0]!, 2);
  expect([waiting.size, waiting.begun]).toEqual([1, 0]);
  expect(waiting.begin()).toBe(items[3]);
  waiting.endWith(items[3]!, 0);
  expect([waiting.size, waiting.begun, waiting.begin()]).toEqual([0, 0, undefined]);
});

test('what is put back stands in front of its key and before what came later', () => {
  const [a1, a2, b1] = [
    { offset: 1n, key: 1 },
    { offset: 2n, key: 1 },
    { offset: 3n, key: 2 },
  ];
  const waiting = queues();
  for (const item of [a1, a2, b1]) waiting.push(item);
  waiting.putBack(waiting.begin()!);
  expect(waiting.begin()).toBe(a1);
  expect(waiting.begin()).toBe(b1);
  expect([waiting.size, waiting.begun]).toEqual([3, 2]);
});

/** One step: a new record of that key, or for what is at work (chosen by number) an end or an interruption, or one that begins; or some of those that wait are done unbegun. */
const step = fc.oneof(
  fc.record({ does: fc.constant('push' as const), key: fc.nat(4) }),
  fc.record({ does: fc.constant('begin' as const) }),
  fc.record({ does: fc.constantFrom('end' as const, 'putBack' as const), which: fc.nat() }),
  fc.record({ does: fc.constant('drop' as const), count: fc.nat(6), from: fc.bigInt(0n, 40n), which: fc.nat(63) }),
);

test('whatever comes and ends when: never two of a key at once, each key in order, and what may begin does, the oldest first', () => {
  fc.assert(
    fc.property(fc.array(step, { maxLength: 200 }), (steps) => {
      const waiting = queues();
      const model: Item[] = []; // not begun, in order
      const begun: Item[] = [];
      const seen: unknown[] = [];
      const expected: unknown[] = [];
      let offset = 0n;
      for (const does of steps) {
        if (does.does === 'push') {
          const item = { offset: (offset += 1n), key: does.key };
          waiting.push(item);
          model.push(item);
        } else if (does.does === 'begin') {
          const next = model.find(({ key }) => !begun.some((other) => other.key === key));
          seen.push(waiting.begin());
          expected.push(next);
          if (next !== undefined) begun.push(...model.splice(model.indexOf(next), 1));
        } else if (does.does === 'drop') {
          const found = waiting.waiting(does.count, does.from);
          seen.push(found);
          expected.push(model.filter((item) => item.offset > does.from).slice(0, does.count));
          const dropped = found.filter((_, at) => (does.which >> at) % 2 === 1);
          waiting.drop(dropped);
          for (const item of dropped) model.splice(model.indexOf(item), 1);
        } else if (begun.length > 0) {
          const [item] = begun.splice(does.which % begun.length, 1);
          waiting[does.does](item!);
          if (does.does === 'putBack') model.unshift(item!);
          model.sort((a, b) => (a.offset < b.offset ? -1 : 1));
        }
        seen.push(waiting.size, waiting.begun, waiting.first);
        const first = model.find(({ key }) => !begun.some((other) => other.key === key));
        expected.push(model.length + begun.length, begun.length, first);
      }
      expect(seen).toEqual(expected);
    }),
  );
});
