import { expect, it } from 'vitest';
import { IdempotencyError } from '#src/shared/errors.js';
import { rejection } from '../schema/own-schema.js';
import { useParking } from './kit.js';

const kit = useParking();
const marks = async () =>
  (await kit.dataSource.query('SELECT record_offset AS "offset", deaths FROM running_records')) as unknown[];
/** A process that marks a record and dies in it: nothing is said to it any more. */
const dieAt = async (offset: bigint) => (await kit.owner()).mark(offset);

it('F12: a mark is written before the first record of an ownership, and no other', async () => {
  const owner = await kit.owner();
  expect(owner.isSuspect).toBe(false);
  await owner.mark(5n);
  expect(await marks()).toEqual([{ offset: '5', deaths: 0 }]);
  expect(owner.mark(6n)).toBeUndefined();
  expect(await marks()).toEqual([{ offset: '5', deaths: 0 }]);
});

it('a record is refused when three processes died on it, and the next one is not blamed', async () => {
  for (let death = 0; death < 3; death += 1) await dieAt(7n);
  const owner = await kit.owner();
  expect(owner.isSuspect).toBe(true);
  const error = (await rejection(owner.mark(7n)!)) as IdempotencyError;
  expect(IdempotencyError.is(error, 'PROCESS_DIED')).toBe(true);
  expect(error.retryable).toBe(false);
  expect(error.message).toContain('orders/0/7');
  await owner.mark(8n);
  expect(await marks()).toEqual([{ offset: '8', deaths: 0 }]);
});

it('a refused record stays refused until it is parked, in this process and in the next', async () => {
  for (let death = 0; death < 3; death += 1) await dieAt(7n);
  const owner = await kit.owner();
  for (const partition of [owner, owner, await kit.owner()])
    expect(IdempotencyError.is(await rejection(partition.mark(7n)!), 'PROCESS_DIED')).toBe(true);
});

it('two deaths do not refuse it', async () => {
  await dieAt(7n);
  await dieAt(7n);
  await dieAt(7n);
  expect(await marks()).toEqual([{ offset: '7', deaths: 2 }]);
});

it('a death is put on the record that runs first afterwards: what stands before it is a duplicate', async () => {
  await dieAt(7n);
  await dieAt(12n);
  expect(await marks()).toEqual([{ offset: '12', deaths: 1 }]);
  await dieAt(12n);
  await dieAt(13n);
  expect(await marks()).toEqual([{ offset: '13', deaths: 1 }]);
});

it('an orderly end takes the mark away, and blames nobody', async () => {
  const owner = await kit.owner();
  await owner.mark(7n);
  await owner.unmark();
  expect(await marks()).toEqual([]);
  expect((await kit.owner()).isSuspect).toBe(false);
  await owner.mark(8n);
  expect(await marks()).toEqual([{ offset: '8', deaths: 0 }]);
});

it('only its own mark is taken away', async () => {
  const before = await kit.owner();
  await before.mark(7n);
  const after = await kit.owner();
  await after.mark(7n);
  await before.unmark();
  expect(await marks()).toEqual([{ offset: '7', deaths: 1 }]);
});

it('marking and unmarking keep their order however they come', async () => {
  const owner = await kit.owner();
  const all = [owner.mark(1n), owner.unmark(), owner.mark(2n)];
  await Promise.all(all.map((one) => Promise.resolve(one)));
  expect(await marks()).toEqual([{ offset: '2', deaths: 0 }]);
  expect(owner.mark(3n)).toBeUndefined();
});

it('the mark of the same process is no death', async () => {
  const room = kit.room();
  await (await kit.owner(0, room)).mark(7n);
  const again = await kit.owner(0, room);
  expect(again.isSuspect).toBe(false);
  await again.mark(7n);
  expect(await marks()).toEqual([{ offset: '7', deaths: 0 }]);
});

it('an owner is suspect until a record has run', async () => {
  await dieAt(7n);
  const owner = await kit.owner();
  expect(owner.isSuspect).toBe(true);
  owner.survived();
  expect(owner.isSuspect).toBe(false);
});

it('an outage is told as one, blames nobody, and the mark is written afterwards', async () => {
  const owner = await kit.owner();
  await kit.dataSource.query('ALTER TABLE running_records RENAME TO away');
  const error = (await rejection(owner.mark(7n)!)) as IdempotencyError;
  expect(IdempotencyError.is(error, 'DATABASE_UNAVAILABLE')).toBe(true);
  expect(error.retryable).toBe(true);
  await owner.unmark();
  await kit.dataSource.query('ALTER TABLE away RENAME TO running_records');
  await owner.mark(7n);
  expect(await marks()).toEqual([{ offset: '7', deaths: 0 }]);
});
