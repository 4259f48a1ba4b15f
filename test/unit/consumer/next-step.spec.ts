import { expect, test } from 'vitest';
import type { Failure } from '#src/consumer/failure-policy.js';
import { nextStep } from '#src/consumer/next-step.js';

const RETRY = { attempts: 5, delayMs: 200, factor: 3, maxDelayMs: 10_000, jitter: 'none' } as const;
const half = () => 0.5;
const serialization = Object.assign(new Error('could not serialize access'), { code: '40001' });
const transient: Failure = { kind: 'transient' };

function failed(error: unknown = new Error('no')) {
  return { outcome: 'failed', error } as const;
}

test.each([
  ['processed', { step: 'settle', duplicate: false }],
  ['stale', { step: 'settle', duplicate: false }],
  ['duplicate', { step: 'settle', duplicate: true }],
] as const)('%s settles the record', (outcome, expected) => {
  expect(nextStep({ outcome }, undefined, { failed: 0, reruns: 0 }, RETRY)).toEqual(expected);
});

test('a failed attempt counts and waits longer each time, up to the limit', () => {
  const unlimited = { ...RETRY, attempts: Infinity };
  const delays = [1, 2, 3, 4, 5, 6].map((tries) =>
    nextStep(failed(), transient, { failed: tries, reruns: 0 }, unlimited),
  );
  expect(delays).toEqual(
    [200, 600, 1800, 5400, 10_000, 10_000].map((delayMs) => ({ step: 'again', delayMs, counts: true })),
  );
});

test('the last attempt parks, not the one before it', () => {
  const after = (tries: number) => nextStep(failed(), transient, { failed: tries, reruns: 0 }, RETRY);
  expect(after(4)).toMatchObject({ step: 'again' });
  expect(after(5)).toEqual({ step: 'park', reason: 'exhausted' });
});

test('a permanent failure parks at once, with its reason', () => {
  const step = nextStep(failed(), { kind: 'permanent', reason: 'decoding' }, { failed: 1, reruns: 0 }, RETRY);
  expect(step).toEqual({ step: 'park', reason: 'decoding' });
});

test.each([
  ['database', 100],
  ['broker', 1000],
] as const)('an outage of the %s never counts and never parks, however long it takes', (of, delayMs) => {
  const step = nextStep(failed(), { kind: 'infrastructure', of }, { failed: 1000, reruns: 0 }, RETRY);
  expect(step).toEqual({ step: 'again', delayMs, counts: false });
});

test('full jitter waits anything up to the delay', () => {
  const step = nextStep(failed(), transient, { failed: 2, reruns: 0 }, { ...RETRY, jitter: 'full' }, half);
  expect(step).toEqual({ step: 'again', delayMs: 300, counts: true });
});

test.each([
  ['busy', 1000],
  ['unknown', 50],
] as const)('%s runs again without counting', (outcome, delayMs) => {
  expect(nextStep({ outcome, error: 'x' }, undefined, { failed: 3, reruns: 0 }, RETRY)).toEqual({
    step: 'again',
    delayMs,
    counts: false,
  });
});

test.each([
  ['a serialization failure', serialization],
  ['a prepared statement that is out of date', Object.assign(new Error('cached plan'), { code: '0A000' })],
])('F28 %s reruns at once five times, also through wrappers, and then counts', (_what, cause) => {
  const wrapped = new Error('outer', { cause: Object.assign(new Error('query failed'), { driverError: cause }) });
  for (let reruns = 0; reruns < 5; reruns += 1) {
    expect(nextStep(failed(wrapped), transient, { failed: 1, reruns }, RETRY, half)).toEqual({
      step: 'again',
      delayMs: 105,
      counts: false,
    });
  }
  expect(nextStep(failed(wrapped), transient, { failed: 1, reruns: 5 }, RETRY)).toEqual({
    step: 'again',
    delayMs: 200,
    counts: true,
  });
});
