import { describe, expect, it } from 'vitest';
import { demoRecords, PARTITIONS, type DemoEvent } from '../../../sample/demo/events.js';

const SIZES = [1, 4, 5, 7, 23, 500, 5_000];

function firstCopies(count: number): DemoEvent[] {
  return demoRecords(count)
    .filter(({ isDuplicate }) => !isDuplicate)
    .map(({ event }) => event);
}

describe.each(SIZES)('demoRecords(%i)', (count) => {
  it('has that many events, each with an id of its own', () => {
    expect(new Set(firstCopies(count).map(({ id }) => id)).size).toBe(count);
  });

  it('has a fifth of them once more, always behind the first copy', () => {
    const seen = new Set<string>();
    let duplicates = 0;
    for (const { event, isDuplicate } of demoRecords(count)) {
      expect(seen.has(event.id)).toBe(isDuplicate);
      if (isDuplicate) duplicates += 1;
      seen.add(event.id);
    }
    expect(duplicates).toBe(Math.floor(count / 5));
  });

  it('numbers the orders of each customer 1, 2, 3, … and keeps a customer on one partition', () => {
    const orders = new Map<string, number>();
    const partitions = new Map<string, number>();
    for (const { customer, number, partition } of firstCopies(count)) {
      expect(number).toBe((orders.get(customer) ?? 0) + 1);
      expect(partitions.get(customer) ?? partition).toBe(partition);
      orders.set(customer, number);
      partitions.set(customer, partition);
    }
  });
});

describe('demoRecords', () => {
  it('uses every partition and gives each customer several orders', () => {
    const events = firstCopies(5_000);
    expect(new Set(events.map(({ partition }) => partition)).size).toBe(PARTITIONS);
    expect(new Set(events.map(({ customer }) => customer)).size).toBe(250);
  });

  it('sends one half of the duplicates at once and the other much later', () => {
    const records = demoRecords(1_000);
    const firstAt = new Map<string, number>();
    const distances = records.flatMap(({ event, isDuplicate }, index) => {
      if (!isDuplicate) firstAt.set(event.id, index);
      return isDuplicate ? [index - (firstAt.get(event.id) as number)] : [];
    });
    expect(distances.filter((distance) => distance === 1).length).toBeGreaterThanOrEqual(100);
    expect(distances.filter((distance) => distance > 100).length).toBeGreaterThanOrEqual(80);
  });
});
