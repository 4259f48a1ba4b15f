import { expect, test } from 'vitest';
import { until } from 'nestjs-kafka-idempotency/testing';

test('until gives back the first truthy value', async () => {
  let looks = 0;
  const value = await until(() => (++looks === 3 ? { looks } : undefined), { what: 'the third look', intervalMs: 1 });
  expect(value).toEqual({ looks: 3 });
});

test('until fails with what was awaited and the last value', async () => {
  const waiting = until(() => 0, { what: 'a row', timeoutMs: 20, intervalMs: 1 });
  await expect(waiting).rejects.toThrow('Waited 20 ms for a row; the last value was 0.');
});

test('until takes an error as "not yet" and fails with the last one', async () => {
  const fails = () => Promise.reject(new Error('connection refused'));
  const waiting = until(fails, { what: 'the server', timeoutMs: 20, intervalMs: 1 });
  await expect(waiting).rejects.toThrow('for the server; the last look failed with Error: connection refused.');
});

test('until fails in time when the condition itself hangs', async () => {
  const waiting = until(() => new Promise<boolean>(() => undefined), {
    what: 'an answer',
    timeoutMs: 20,
    intervalMs: 1,
  });
  await expect(waiting).rejects.toThrow('Waited 20 ms for an answer; looking itself did not come to an end.');
});
