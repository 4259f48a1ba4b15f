import { expect, test } from 'vitest';
import { until } from 'nestjs-kafka-idempotency/testing';
import { eventHandler, Gate, writeEffect } from './kit/handlers.js';
import { testService, testWorker, testWorld } from './kit/in-test.js';

test('F14 SIGTERM under load: the running handler ends, its offset is committed, and the next start finds nothing to skip', async () => {
  const world = await testWorld();
  const topic = await world.topic();
  await world.send(topic, ...Array.from({ length: 20 }, (_, at) => ({ id: `e${at}` })));
  const first = testWorker(world, { topic, handlerMs: 700 });
  await until(() => first.calls.length === 2, { what: 'the second handler call', timeoutMs: 20_000 });
  const signalledAt = performance.now();
  first.signal('SIGTERM');
  expect(await first.untilEnded()).toEqual({ code: null, signal: 'SIGTERM' }); // Nest raises the signal again at the end
  expect(performance.now() - signalledAt).toBeLessThan(5000);
  expect(first.stderr).toBe('');
  expect(await world.effects()).toEqual(['e0', 'e1']);
  expect(await world.committed(topic)).toBe(2n);

  const second = testWorker(world, { topic });
  await world.untilCommitted(topic, 20);
  expect(second.offsetsOf('duplicate')).toEqual([]);
  expect(await world.effects()).toHaveLength(20);
});

test('B25 closing the application waits for the handler, commits its offset, and ends the pool after it', async () => {
  const world = await testWorld();
  const topic = await world.topic();
  const [began, goOn] = [new Gate(), new Gate()];
  const handler = eventHandler(topic, async ({ id }, tools) => {
    began.open();
    await goOn.passed;
    await writeEffect(tools, id);
  });
  const service = await testService(world, { controllers: [handler] });
  await world.send(topic, { id: 'a' }, { id: 'b' });
  await began.passed;
  const closing = service.close();
  await until(() => !service.server.health().ready, { what: 'readiness to go down' });
  goOn.open();
  await closing;
  expect(await world.effects()).toEqual(['a']);
  expect(await world.committed(topic)).toBe(1n);
  expect(service.named('failed')).toEqual([]);
});

test('a closed application leaves nothing open that keeps its process alive', async () => {
  const world = await testWorld();
  const topic = await world.topic();
  const worker = testWorker(world, { topic });
  await world.send(topic, { id: 'e1' });
  await world.untilCommitted(topic, 1);
  const since = performance.now();
  worker.close();
  expect(await worker.untilEnded()).toEqual({ code: 0, signal: null });
  expect(performance.now() - since).toBeLessThan(10_000);
});

test('B27 a handler that never ends is rolled back at the deadline, and nothing of it is committed', async () => {
  const world = await testWorld();
  const topic = await world.topic();
  const began = new Gate();
  const handler = eventHandler(topic, async ({ id }, tools) => {
    await writeEffect(tools, id);
    began.open();
    await new Gate().passed;
  });
  const service = await testService(world, { controllers: [handler], options: { shutdown: { deadline: 1000 } } });
  await world.send(topic, { id: 'a' });
  await began.passed;
  const closedAt = performance.now();
  await service.close();
  expect(performance.now() - closedAt).toBeLessThan(2500);
  expect(await world.effects()).toEqual([]);
  expect(await world.committed(topic)).toBe(0n);
  // No transaction of the service is left on the table.
  const locks = () => world.db.query<unknown[]>(`SELECT pid FROM pg_locks WHERE relation = 'effects'::regclass`);
  await until(async () => (await locks()).length === 0, { what: 'the locks to be gone' });
});

test('B27 stop() inside a handler lets its record finish and then leaves the group', async () => {
  const world = await testWorld();
  const topic = await world.topic();
  let stop: () => Promise<void> = async () => undefined;
  const handler = eventHandler(topic, async ({ id }, tools) => {
    await stop();
    await writeEffect(tools, id);
  });
  const service = await testService(world, { controllers: [handler] });
  stop = () => service.server.stop();
  await world.send(topic, { id: 'a' }, { id: 'b' });
  await world.untilEffects(1);
  await service.server.stop();
  expect(await world.effects()).toEqual(['a']);
  expect(await world.committed(topic)).toBe(1n);
});

test('B27 closing while the consumer still waits for its topic is clean', async () => {
  const world = await testWorld();
  const service = await testService(world, { controllers: [eventHandler(world.topicName(), () => undefined)] });
  await service.close();
  expect(service.server.health().ready).toBe(false);
});

test('a record that is being tried again waits too while its topic is paused', async () => {
  const world = await testWorld();
  const topic = await world.topic();
  let isFailing = true;
  const handler = eventHandler(topic, async ({ id }, tools) => {
    if (isFailing) throw new Error('not yet');
    await writeEffect(tools, id);
  });
  const service = await testService(world, { controllers: [handler] });
  await world.send(topic, { id: 'a' });
  await until(() => service.named('failed').length > 0, { what: 'the first failure' });
  service.server.pause(topic);
  await until(() => service.named('received').length === service.named('failed').length, {
    what: 'no delivery to run',
  });
  const tries = service.named('received').length;
  isFailing = false;
  const other = await world.topic(1, 'clock');
  await testService(world, {
    controllers: [eventHandler(other, ({ id }, tools) => writeEffect(tools, id), { consumer: 'clock' })],
    options: { kafka: { consumer: { groupId: `${world.group}-clock` } } },
  });
  await world.send(other, { id: 'tick' });
  await world.untilCommitted(other, 1, 0, `${world.group}-clock`); // longer than several backoffs of 50 ms
  expect(service.named('received')).toHaveLength(tries);
  service.server.resume(topic);
  await world.untilCommitted(topic, 1);
  expect((await world.effects()).sort()).toEqual(['a', 'tick']);
});

test('a paused topic begins nothing further until it is resumed, and the other topics go on', async () => {
  const world = await testWorld();
  const [paused, other] = [await world.topic(1, 'paused'), await world.topic(1, 'other')];
  const service = await testService(world, {
    controllers: [
      eventHandler(paused, ({ id }, tools) => writeEffect(tools, id, 'paused'), { consumer: 'paused' }),
      eventHandler(other, ({ id }, tools) => writeEffect(tools, id, 'other'), { consumer: 'other' }),
    ],
  });
  await until(() => service.named('assigned').length > 0, { what: 'the assignment' });
  service.server.pause(paused);
  await world.send(paused, { id: 'p' });
  await world.send(other, { id: 'o1' }, { id: 'o2' });
  await world.untilCommitted(other, 2);
  expect(await world.effects('paused')).toEqual([]);
  expect(service.server.health().partitions.find(({ topic }) => topic === paused)?.state).toBe('paused');
  service.server.resume(paused);
  await world.untilCommitted(paused, 1);
  expect(await world.effects('paused')).toEqual(['p']);
});
