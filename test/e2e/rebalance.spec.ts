import { setTimeout as sleep } from 'node:timers/promises';
import { expect, test } from 'vitest';
import { until } from 'nestjs-kafka-idempotency/testing';
import { eventHandler, Gate, writeEffect } from './kit/handlers.js';
import { testService, testWorker, testWorld } from './kit/in-test.js';
import {
  expectOnceInOrder,
  numberedHandler,
  sendNumbered,
  startsOnLostPartitions,
  type Numbered,
} from './kit/numbered.js';

const SHORT_SESSION = { sessionTimeout: 1500, heartbeatInterval: 300 };

test('B06 a handler much longer than the session runs once, and its member stays in the group', async () => {
  const world = await testWorld();
  const topic = await world.topic();
  const handler = eventHandler(topic, async ({ id }, tools) => {
    await writeEffect(tools, id);
    await sleep(4000); // the length of the handler is the point
  });
  const service = await testService(world, {
    controllers: [handler],
    options: { kafka: { consumer: { groupId: world.group, ...SHORT_SESSION } } },
  });
  await world.send(topic, { id: 'a' });
  await world.untilCommitted(topic, 1);
  expect(await world.effects()).toEqual(['a']);
  expect(service.named('received')).toHaveLength(1);
  expect(service.named('assigned')).toHaveLength(1);
});

test('B06 a handler past its timeout is rolled back and tried again', async () => {
  const world = await testWorld();
  const topic = await world.topic();
  const never = new Gate();
  let calls = 0;
  const handler = eventHandler(topic, async ({ id }, tools) => {
    await writeEffect(tools, id);
    calls += 1;
    if (calls === 1) await never.passed;
  });
  const service = await testService(world, { controllers: [handler], options: { timeout: 500 } });
  await world.send(topic, { id: 'a' });
  await world.untilCommitted(topic, 1);
  expect(await world.effects()).toEqual(['a']);
  expect(calls).toBe(2);
  expect(service.named('failed')[0]?.error).toMatchObject({ code: 'HANDLER_TIMEOUT' });
});

test('B07 an offset commit refused after the transaction is no failure: the event is skipped where it comes again', async () => {
  const world = await testWorld();
  const topic = await world.topic(2);
  await world.send(topic, { id: 'a', partition: 0 });
  const zombie = testWorker(world, { topic, failpoint: { at: 'processed', offset: '0', signal: 'SIGSTOP' } });
  await world.untilEffects(1);

  const second = testWorker(world, { topic });
  await world.untilCommitted(topic, 1);
  expect(second.offsetsOf('duplicate')).toEqual(['0']);
  zombie.signal('SIGCONT');
  await until(async () => (await world.admin.describeGroups([world.group])).groups[0]?.members.length === 2, {
    what: 'the frozen worker to be a member again',
    timeoutMs: 20_000,
  });
  await world.send(topic, { id: 'b', partition: 0 }, { id: 'c', partition: 1 });
  await world.untilCommitted(topic, 2, 0);
  await world.untilCommitted(topic, 1, 1);
  expect((await world.effects()).sort()).toEqual(['a', 'b', 'c']);
  expect([...zombie.calls, ...second.calls].sort()).toEqual(['a', 'b', 'c']);
  expect([...zombie.offsetsOf('failed'), ...second.offsetsOf('failed')]).toEqual([]);
});

test('B29 partitions that move and come back with a backlog: each event once, in order, none begun after its loss', async () => {
  const [partitions, each] = [4, 60];
  const world = await testWorld();
  const topic = await world.topic(partitions);
  await sendNumbered(world, topic, partitions, each);
  const options = {
    controllers: [numberedHandler(topic, 15)],
    options: { kafka: { consumer: { groupId: world.group, ...SHORT_SESSION } } },
  };
  const first = await testService(world, options);
  await world.untilEffects(20);
  const second = await testService(world, options);
  await until(() => second.named('received').length >= 10, { what: 'the second to work', timeoutMs: 20_000 });
  await second.close();
  for (let partition = 0; partition < partitions; partition += 1) await world.untilCommitted(topic, each, partition);
  await expectOnceInOrder(world, partitions, each);
  expect(first.named('revoked').length).toBeGreaterThan(0);
  expect([...startsOnLostPartitions(first), ...startsOnLostPartitions(second)]).toEqual([]);
});

test('B29 an owner frozen past its session in the middle of a record: each event once, in order', async () => {
  const [partitions, each] = [2, 40];
  const world = await testWorld();
  const topic = await world.topic(partitions);
  await sendNumbered(world, topic, partitions, each);
  const frozen = testWorker(world, { topic, handlerMs: 10, numbered: true });
  await world.untilEffects(10);
  frozen.signal('SIGSTOP');
  const second = testWorker(world, { topic, handlerMs: 10, numbered: true });
  // The frozen one may hold its claims open: then the second waits for them instead of running beside it.
  await until(() => second.calls.length > 0 || second.offsetsOf('busy').length >= partitions, {
    what: 'the second to take over',
    timeoutMs: 20_000,
  });
  frozen.signal('SIGCONT');
  for (let partition = 0; partition < partitions; partition += 1) await world.untilCommitted(topic, each, partition);
  await expectOnceInOrder(world, partitions, each);
});

test('B36 a partition that keeps failing does not hold up the others, and none of their records runs twice', async () => {
  const world = await testWorld();
  const topic = await world.topic(3);
  let isFailing = true;
  let running = 0;
  let most = 0;
  const handler = eventHandler<Numbered>(topic, async ({ id, partition }, tools) => {
    running += 1;
    most = Math.max(most, running);
    try {
      await writeEffect(tools, id);
      if (partition === 0 && isFailing) throw new Error('not yet');
    } finally {
      running -= 1;
    }
  });
  const service = await testService(world, { controllers: [handler], options: { concurrency: { transactions: 3 } } });
  await sendNumbered(world, topic, 3, 50);
  await world.untilCommitted(topic, 50, 1);
  await world.untilCommitted(topic, 50, 2);
  expect(await world.committed(topic, 0)).toBe(0n);
  const health = service.server.health();
  expect(health).toMatchObject({ ready: true, live: true, reasons: [{ code: 'HANDLER_RETRYING' }] });

  isFailing = false;
  await world.untilCommitted(topic, 50, 0);
  expect(await world.effects()).toHaveLength(150);
  expect(most).toBeLessThanOrEqual(3);
  expect(service.named('received').filter(({ partition }) => partition !== 0)).toHaveLength(100);
  expect(service.server.health().reasons).toEqual([]);
});
