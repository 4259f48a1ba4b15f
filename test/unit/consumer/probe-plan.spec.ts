import { expect, test } from 'vitest';
import fc from 'fast-check';
import { ProbePlan } from '#src/consumer/probe-plan.js';

const DUPLICATE = { duplicate: true };
const FRESH = { duplicate: false };

function inARun(): ProbePlan {
  const plan = new ProbePlan();
  plan.settled(DUPLICATE);
  plan.settled(DUPLICATE);
  return plan;
}

test('two duplicates in a row begin it, and a fresh record ends it', () => {
  const plan = new ProbePlan();
  expect(plan.next).toBe(0);
  plan.settled(DUPLICATE);
  plan.settled(FRESH);
  plan.settled(DUPLICATE);
  expect(plan.next).toBe(0);
  plan.settled(DUPLICATE);
  expect(plan.next).toBe(16);
  plan.settled(FRESH);
  expect(plan.next).toBe(0);
});

test('it grows while all that is looked up is found, up to 500', () => {
  const plan = inARun();
  const sizes = Array.from({ length: 7 }, () => {
    const { next } = plan;
    plan.probed(next, next);
    return next;
  });
  expect(sizes).toEqual([16, 32, 64, 128, 256, 500, 500]);
});

test('while at least half is found it goes on as it is; with less it is over until there is a run again', () => {
  const plan = inARun();
  plan.probed(16, 8);
  expect(plan.next).toBe(16);
  plan.probed(16, 7);
  expect(plan.next).toBe(0);
  plan.settled(DUPLICATE);
  expect(plan.next).toBe(0);
});

test('nothing to look up, or an error, ends it as well', () => {
  const plan = inARun();
  plan.probed(0, 0);
  expect(plan.next).toBe(0);
  const other = inARun();
  other.probed(16, 16);
  other.giveUp();
  expect(other.next).toBe(0);
  other.settled(DUPLICATE);
  other.settled(DUPLICATE);
  expect(other.next).toBe(16);
});

test('a lane without two duplicates in a row never looks anything up', () => {
  fc.assert(
    fc.property(fc.array(fc.boolean()), (fresh) => {
      const plan = new ProbePlan();
      for (const isFresh of fresh) {
        plan.settled(isFresh ? FRESH : DUPLICATE);
        if (!isFresh) plan.settled(FRESH);
        expect(plan.next).toBe(0);
      }
    }),
  );
});
