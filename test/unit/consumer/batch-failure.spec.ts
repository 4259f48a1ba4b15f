import { expect, test } from 'vitest';
import { BatchItemError, NonRetryableError } from 'nestjs-kafka-idempotency';
import { blamedPlace } from '#src/consumer/batch-failure.js';

/** The array holds the third, fifth and ninth record of its group. */
const fresh = [2, 4, 8];

test('a named item is the record at that place of the array', () => {
  expect(blamedPlace({ fresh, error: new BatchItemError(1) })).toBe(4);
});

test('the name is also found as the cause of what was thrown', () => {
  const error = new Error('wrapped', { cause: new BatchItemError(2, { cause: new NonRetryableError('no') }) });
  expect(blamedPlace({ fresh, error })).toBe(8);
});

test('an error of another copy of the package names its item too', () => {
  const brand = Symbol.for('nestjs-kafka-idempotency:error');
  expect(blamedPlace({ fresh, error: { [brand]: true, code: 'BATCH_ITEM_FAILED', index: 0 } })).toBe(2);
});

test.each([3, -1, 0.5, Number.NaN])('an index of %s names nothing', (index) => {
  expect(blamedPlace({ fresh, error: new BatchItemError(index) })).toBeUndefined();
});

test('any other error names nothing, whatever properties it has', () => {
  expect(blamedPlace({ fresh, error: Object.assign(new Error('x'), { index: 1 }) })).toBeUndefined();
  expect(blamedPlace({ fresh, error: undefined })).toBeUndefined();
});

test('one that was alone in the array needs no name', () => {
  expect(blamedPlace({ fresh: [7], error: new Error('x') })).toBe(7);
});

test('what failed before the claim is looked at in the first record', () => {
  expect(blamedPlace({ fresh: undefined, error: new Error('no id') })).toBe(0);
});
