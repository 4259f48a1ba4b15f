import { expect, test } from 'vitest';
import { Slots } from '#src/consumer/slots.js';

const never = () => new AbortController().signal;

/** The order in which waiting ones were served. */
function waiting(slots: Slots, names: readonly [name: string, need: number][]) {
  const served: string[] = [];
  for (const [name, need] of names) void slots.acquire(never(), need).then((granted) => granted && served.push(name));
  return served;
}

const turn = () => new Promise((resolve) => setImmediate(resolve));

test('gives out no more than there are, and the next when one comes back', async () => {
  const slots = new Slots(2);
  expect([slots.tryAcquire(), slots.tryAcquire(), slots.tryAcquire()]).toEqual([true, true, false]);
  const served = waiting(slots, [['a', 1]]);
  await turn();
  expect(served).toEqual([]);
  slots.release();
  await turn();
  expect(served).toEqual(['a']);
});

test('one that needs all of them waits for all, and nobody overtakes it', async () => {
  const slots = new Slots(3);
  slots.tryAcquire();
  const served = waiting(slots, [
    ['alone', 3],
    ['after', 1],
  ]);
  await turn();
  expect(served).toEqual([]);
  expect(slots.tryAcquire()).toBe(false); // two are free, but it is not their turn
  slots.release();
  await turn();
  expect(served).toEqual(['alone']);
  slots.release(3);
  await turn();
  expect(served).toEqual(['alone', 'after']);
});

test('one that is interrupted gets none, keeps none, and lets the next pass', async () => {
  const slots = new Slots(2);
  slots.tryAcquire();
  const interrupted = new AbortController();
  const alone = slots.acquire(interrupted.signal, 2);
  const served = waiting(slots, [['after', 1]]);
  interrupted.abort();
  expect(await alone).toBe(false);
  await turn();
  expect(served).toEqual(['after']);
  slots.release(2);
  expect(slots.tryAcquire(2)).toBe(true);
});

test('one that is interrupted before it asks gets none', async () => {
  const slots = new Slots(1);
  expect(await slots.acquire(AbortSignal.abort())).toBe(false);
  expect(slots.tryAcquire()).toBe(true);
});
