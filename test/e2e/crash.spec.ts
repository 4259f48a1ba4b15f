import { expect, test } from 'vitest';
import { until } from 'nestjs-kafka-idempotency/testing';
import { testWorker, testWorld } from './kit/in-test.js';
import type { Worker } from './kit/worker.js';
import type { World } from './kit/world.js';

// Each test sends a, b and c, lets a worker kill itself at b (offset 1), and starts another.

const SIGKILLED = { code: null, signal: 'SIGKILL' };

async function worldOfThree(): Promise<{ world: World; topic: string }> {
  const world = await testWorld();
  const topic = await world.topic();
  await world.send(topic, { id: 'a' }, { id: 'b' }, { id: 'c' });
  return { world, topic };
}

const callsOf = (id: string, ...workers: Worker[]): number =>
  workers.flatMap(({ calls }) => calls).filter((call) => call === id).length;

test('F01 a crash before the transaction: the event is delivered again and runs once', async () => {
  const { world, topic } = await worldOfThree();
  const first = testWorker(world, { topic, failpoint: { at: 'received', offset: '1' } });
  expect(await first.untilEnded()).toEqual(SIGKILLED);
  expect(await world.effects()).toEqual(['a']);

  const second = testWorker(world, { topic });
  await world.untilCommitted(topic, 3);
  expect(await world.effects()).toEqual(['a', 'b', 'c']);
  expect(callsOf('b', first, second)).toBe(1);
});

test('F02 a crash after the claim takes the claim with it, and the event runs again', async () => {
  const { world, topic } = await worldOfThree();
  const first = testWorker(world, { topic, failpoint: { at: 'claimed', offset: '1' } });
  expect(await first.untilEnded()).toEqual(SIGKILLED);
  expect(await world.processed()).toEqual(['test/a']);

  const second = testWorker(world, { topic });
  await world.untilCommitted(topic, 3);
  expect(await world.effects()).toEqual(['a', 'b', 'c']);
  expect(await world.processed()).toEqual(['test/a', 'test/b', 'test/c']);
  expect(callsOf('b', first, second)).toBe(1);
});

test('F02 a worker frozen with its claim holds the event back, and its death sets it free', async () => {
  const { world, topic } = await worldOfThree();
  const frozen = testWorker(world, { topic, failpoint: { at: 'claimed', offset: '1', signal: 'SIGSTOP' } });
  await until(() => frozen.offsetsOf('claimed').includes('1'), { what: 'the claim' });
  const second = testWorker(world, { topic });
  await until(() => second.offsetsOf('busy').includes('1'), {
    what: 'the second worker to meet the claim',
    timeoutMs: 30_000,
  });
  expect(await world.effects()).toEqual(['a']);

  await frozen.kill();
  await world.untilCommitted(topic, 3);
  expect(await world.effects()).toEqual(['a', 'b', 'c']);
  expect(callsOf('b', frozen, second)).toBe(1);
});

test('F03 a crash after the handler and before COMMIT leaves nothing, and the handler runs again', async () => {
  const { world, topic } = await worldOfThree();
  // The handler lives longer than the commit interval: an offset written too early would be out by then.
  const first = testWorker(world, { topic, handlerMs: 300, failpoint: { at: 'handled', offset: '1' } });
  expect(await first.untilEnded()).toEqual(SIGKILLED);
  expect(await world.effects()).toEqual(['a']);
  expect(await world.processed()).toEqual(['test/a']);
  expect(await world.committed(topic)).toBeLessThanOrEqual(1n);

  const second = testWorker(world, { topic });
  await world.untilCommitted(topic, 3);
  expect(await world.effects()).toEqual(['a', 'b', 'c']);
  expect(callsOf('b', first, second)).toBe(2);
});

test('F06 a crash between the commit and the offset runs the handler once', async () => {
  const { world, topic } = await worldOfThree();
  const first = testWorker(world, { topic, failpoint: { at: 'processed', offset: '1' } });
  expect(await first.untilEnded()).toEqual(SIGKILLED);
  expect(await world.effects()).toEqual(['a', 'b']);
  expect(await world.committed(topic)).toBeLessThanOrEqual(1n);

  const second = testWorker(world, { topic });
  await world.untilCommitted(topic, 3);
  expect(await world.effects()).toEqual(['a', 'b', 'c']);
  expect(callsOf('b', first, second)).toBe(1);
  expect(second.offsetsOf('duplicate')).toContain('1');
});

test('F07 after a crash behind the offset commit nothing is delivered again', async () => {
  const { world, topic } = await worldOfThree();
  const first = testWorker(world, { topic, failpoint: { at: 'committed', offset: '3' } });
  expect(await first.untilEnded()).toEqual(SIGKILLED);

  const second = testWorker(world, { topic });
  await world.send(topic, { id: 'd' });
  await world.untilCommitted(topic, 4);
  expect(second.offsetsOf('received')).toEqual(['3']);
  expect(await world.effects()).toEqual(['a', 'b', 'c', 'd']);
});

test('B02 a record that fails stays in front over a kill during its backoff', async () => {
  const { world, topic } = await worldOfThree();
  const first = testWorker(world, { topic, failing: ['a'], retryDelayMs: 30_000 });
  await until(() => first.offsetsOf('failed').includes('0'), { what: 'the first failure' });
  await first.kill();
  expect(await world.committed(topic)).toBe(0n);
  expect(first.calls).toEqual(['a']);

  const second = testWorker(world, { topic });
  await world.untilCommitted(topic, 3);
  expect(second.calls).toEqual(['a', 'b', 'c']);
  expect(await world.effects()).toEqual(['a', 'b', 'c']);
});

test("B45 a late statement's rejection that nobody handles ends the process as Node does, and the event has one effect", async () => {
  const { world, topic } = await worldOfThree();
  const first = testWorker(world, { topic, late: ['a'] });
  expect(await first.untilEnded()).toEqual({ code: 1, signal: null });
  expect(first.stderr).toContain("The transaction of consumer 'test'");
  expect(first.stderr).toContain('TRANSACTION_ENDED');

  testWorker(world, { topic });
  await world.untilCommitted(topic, 3);
  expect(await world.effects()).toEqual(['a', 'b', 'c']);
});
