import { expect, test } from 'vitest';
import fc from 'fast-check';
import { GroupPlan } from '#src/consumer/group-plan.js';

const N = 8;

/** Drives a plan over records of which some fail, and says what ran in which transaction. */
function run(count: number, failing: ReadonlySet<number>, seesRecord: boolean) {
  const plan = new GroupPlan(N);
  const settled: number[] = [];
  const groups: number[][] = [];
  const calls = new Map<number, number>();
  while (settled.length < count) {
    const group = Array.from({ length: Math.min(plan.next, count - settled.length) }, (_, at) => settled.length + at);
    groups.push(group);
    const bad = group.findIndex((record) => failing.has(record));
    const ran = bad !== -1 && seesRecord ? group.slice(0, bad + 1) : group;
    for (const record of ran) calls.set(record, (calls.get(record) ?? 0) + 1);
    if (bad === -1 || group.length === 1) {
      settled.push(...group);
      plan.done(group.length);
    } else if (seesRecord) plan.failedAt(bad, group.length);
    else plan.failed(group.length);
  }
  return { settled, groups, calls };
}

test('a failing record goes alone, those before it together, those behind it together', () => {
  expect(run(12, new Set([3]), true).groups).toEqual([
    [0, 1, 2, 3, 4, 5, 6, 7],
    [0, 1, 2],
    [3],
    [4, 5, 6, 7],
    [8, 9, 10, 11],
  ]);
});

test('a failure that no record can be blamed for is found by halves', () => {
  expect(run(8, new Set([2]), false).groups).toEqual([
    [0, 1, 2, 3, 4, 5, 6, 7],
    [0, 1, 2, 3],
    [0, 1],
    [2, 3],
    [2],
    [3],
    [4, 5, 6, 7],
  ]);
});

test('another live copy lets what was tried go one by one, and then the groups go on', () => {
  const plan = new GroupPlan(4);
  plan.oneByOne(3);
  const seen: number[] = [];
  for (let at = 0; at < 3; at += 1) {
    seen.push(plan.next);
    plan.done(1);
  }
  expect([...seen, plan.next]).toEqual([1, 1, 1, 4]);
});

test('whatever fails, every record is settled once and in order, each in no more than three tries where the record is seen, and in log n where it is not', () => {
  const most = Math.log2(N) + 2;
  fc.assert(
    fc.property(fc.nat(40), fc.array(fc.nat(40)), fc.boolean(), (count, failing, seesRecord) => {
      const { settled, calls } = run(count, new Set(failing), seesRecord);
      expect(settled).toEqual(Array.from({ length: count }, (_, at) => at));
      expect(Math.max(0, ...calls.values())).toBeLessThanOrEqual(seesRecord ? 3 : most);
    }),
  );
});
