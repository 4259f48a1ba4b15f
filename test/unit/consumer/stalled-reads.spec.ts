import { expect, test } from 'vitest';
import { stalledDetail, StalledReads } from '#src/consumer/stalled-reads.js';

const at = (stable: bigint, end: bigint) => ({ topic: 'orders', partition: 3, stable, end });

test('a partition whose readable end stands still for ten seconds, with something behind it', () => {
  const reads = new StalledReads();
  for (let now = 0; now <= 9_000; now += 1_000) reads.seen(at(7n, 9n), now);
  expect(reads.stalled(9_999)).toEqual([]);
  reads.seen(at(7n, 12n), 10_000);
  expect(reads.stalled(10_000)).toMatchObject([at(7n, 12n)]);
  expect(stalledDetail(reads.stalled(10_000)[0]!)).toContain(
    'orders[3] can be read up to offset 7 only, and 5 offsets wait',
  );
  reads.seen(at(12n, 12n), 10_100);
  expect(reads.stalled(10_100)).toEqual([]);
});

test('transactions one after another move it on, and that is none', () => {
  const reads = new StalledReads();
  for (let now = 0; now <= 30_000; now += 1_000) reads.seen(at(BigInt(now), BigInt(now) + 5n), now);
  expect(reads.stalled(30_000)).toEqual([]);
});

test('what is not fetched any more, or belongs to an earlier assignment, tells nothing', () => {
  const reads = new StalledReads();
  reads.seen(at(7n, 9n), 0);
  expect(reads.stalled(60_000)).toEqual([]);
  reads.seen(at(7n, 9n), 60_000);
  expect(reads.stalled(60_000)).toHaveLength(1);
  reads.keepOnly([{ topic: 'orders', partition: 3 }]);
  expect(reads.stalled(60_000)).toHaveLength(1);
  reads.keepOnly([{ topic: 'orders', partition: 2 }]);
  expect(reads.stalled(60_000)).toEqual([]);
});
