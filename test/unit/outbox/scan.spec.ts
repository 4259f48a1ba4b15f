import { expect, it } from 'vitest';
import { Scan } from '#src/outbox/scan.js';

const scan = () => {
  const made = new Scan();
  return { made, at: () => made.cursors[3], read: (id: bigint) => made.passed([{ shard: 3, id }]) };
};

it('a pass goes on behind what it has read; the next begins where reading had come half a second before', () => {
  const { made, at, read } = scan();
  read(10n);
  expect(at()).toBe(10n);
  made.toNear(1000);
  expect(at()).toBe(0n);
  read(20n);
  made.toNear(1400);
  expect(at()).toBe(0n);
  read(30n);
  made.toNear(1500);
  expect(at()).toBe(10n);
  made.toNear(2000);
  expect(at()).toBe(30n);
  made.toStart();
  made.toNear(2100);
  expect(at()).toBe(30n);
});

it('the low water rises to what was read before every open transaction had begun, and not before five seconds', () => {
  const { made, at, read } = scan();
  read(10n);
  made.mark(0, { xmin: 5n, xmax: 8n });
  read(50n);
  made.mark(6000, { xmin: 7n, xmax: 20n });
  expect(made.lowWater(3)).toBe(0n);
  read(60n);
  made.mark(7000, { xmin: 8n, xmax: 20n });
  expect([made.lowWater(3), at()]).toEqual([10n, 60n]);
  read(70n);
  made.mark(8000, { xmin: 30n, xmax: 30n });
  expect(made.lowWater(3)).toBe(10n);
  made.mark(11_000, { xmin: 30n, xmax: 30n });
  expect(made.lowWater(3)).toBe(50n);
});

it('a shard that comes begins at its own low water', () => {
  const { made, read } = scan();
  read(100n);
  made.enter(3, 40n);
  expect([made.cursors[3], made.lowWater(3), made.cursors[4]]).toEqual([40n, 40n, 0n]);
});

it('after a failure nothing counts as looked at: neither the next pass nor a new owner begins behind what was not sent', () => {
  const { made, at, read } = scan();
  read(10n);
  made.mark(0, { xmin: 5n, xmax: 8n });
  read(50n);
  made.mark(6000, { xmin: 9n, xmax: 20n });
  expect(made.lowWater(3)).toBe(10n);
  made.restart();
  made.toNear(20_000);
  expect([at(), made.lowWater(3)]).toEqual([0n, 0n]);
  made.mark(20_000, { xmin: 30n, xmax: 30n });
  made.toNear(30_000);
  expect([at(), made.lowWater(3)]).toEqual([0n, 0n]);
});
