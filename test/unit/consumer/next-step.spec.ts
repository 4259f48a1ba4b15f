import { expect, test } from 'vitest';
import { nextStep } from '#src/consumer/next-step.js';

const RETRY = { delayMs: 200, factor: 3, maxDelayMs: 10_000, jitter: 'none' } as const;
const half = () => 0.5;
const serialization = Object.assign(new Error('could not serialize access'), { code: '40001' });

test.each([
  ['processed', { step: 'settle', duplicate: false }],
  ['stale', { step: 'settle', duplicate: false }],
  ['duplicate', { step: 'settle', duplicate: true }],
] as const)('%s settles the record', (outcome, expected) => {
  expect(nextStep({ outcome }, { failed: 0, reruns: 0 }, RETRY)).toEqual(expected);
});

test('a failed attempt counts and waits longer each time, up to the limit', () => {
  const error = new Error('no');
  const delays = [1, 2, 3, 4, 5, 6].map((failed) =>
    nextStep({ outcome: 'failed', error }, { failed, reruns: 0 }, RETRY),
  );
  expect(delays).toEqual(
    [200, 600, 1800, 5400, 10_000, 10_000].map((delayMs) => ({ step: 'again', delayMs, counts: true })),
  );
});

test('full jitter waits anything up to the delay', () => {
  const step = nextStep(
    { outcome: 'failed', error: 'x' },
    { failed: 2, reruns: 0 },
    { ...RETRY, jitter: 'full' },
    half,
  );
  expect(step).toEqual({ step: 'again', delayMs: 300, counts: true });
});

test.each([
  ['busy', 1000],
  ['unknown', 50],
] as const)('%s runs again without counting', (outcome, delayMs) => {
  expect(nextStep({ outcome, error: 'x' }, { failed: 3, reruns: 0 }, RETRY)).toEqual({
    step: 'again',
    delayMs,
    counts: false,
  });
});

test('F28 a serialization failure reruns at once five times, also through wrappers, and then counts', () => {
  const wrapped = new Error('outer', {
    cause: Object.assign(new Error('query failed'), { driverError: serialization }),
  });
  const report = { outcome: 'failed', error: wrapped } as const;
  for (let reruns = 0; reruns < 5; reruns += 1) {
    expect(nextStep(report, { failed: 1, reruns }, RETRY, half)).toEqual({
      step: 'again',
      delayMs: 105,
      counts: false,
    });
  }
  expect(nextStep(report, { failed: 1, reruns: 5 }, RETRY)).toEqual({ step: 'again', delayMs: 200, counts: true });
});
