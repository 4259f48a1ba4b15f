import { Controller } from '@nestjs/common';
import { Payload } from '@nestjs/microservices';
import { expect, test } from 'vitest';
import { until } from 'nestjs-kafka-idempotency/testing';
import { eventHandler, writeEffect, type TestEvent } from './kit/handlers.js';
import { testService, testSession, testWorker, testWorld } from './kit/in-test.js';
import { parkedRows } from './kit/parked.js';
import { OnTopic } from './kit/service.js';
import type { World } from './kit/world.js';

const marks = (world: World) =>
  world.db.query<{ record_offset: string; deaths: number }[]>(
    'SELECT record_offset, deaths FROM running_records ORDER BY partition',
  );

test('a record that kills three processes is parked by the fourth, which goes on behind it', async () => {
  const world = await testWorld();
  const topic = await world.topic();
  await world.send(topic, { id: 'a' }, { id: 'b' }, { id: 'c' });
  for (let deaths = 0; deaths < 3; deaths += 1) {
    const worker = testWorker(world, { topic, deadly: ['b'] });
    expect(await worker.untilEnded()).toMatchObject({ signal: 'SIGKILL' });
    expect(worker.calls.at(-1)).toBe('b');
  }
  const fourth = testWorker(world, { topic, deadly: ['b'] });
  await world.untilCommitted(topic, 3);
  expect(fourth.calls).toEqual(['c']);
  expect(await world.effects()).toEqual(['a', 'c']);
  expect(await parkedRows(world)).toMatchObject([
    { event_id: 'b', state: 'dead', reason: 'process-death', error_code: 'PROCESS_DIED' },
  ]);
});

test('records of other partitions that ran beside the killer are not blamed', async () => {
  const world = await testWorld();
  const topic = await world.topic(3);
  await world.send(topic, { id: 'b', partition: 0 });
  const innocent = Array.from({ length: 8 }, (_, at) => ({ id: `i${at}`, partition: 1 + (at % 2) }));
  await world.send(topic, ...innocent);
  for (let deaths = 0; deaths < 3; deaths += 1) {
    const worker = testWorker(world, { topic, deadly: ['b'], handlerMs: 50 });
    expect(await worker.untilEnded()).toMatchObject({ signal: 'SIGKILL' });
  }
  testWorker(world, { topic, deadly: ['b'] });
  await world.untilEffects(8);
  await world.untilCommitted(topic, 1, 0);
  expect((await world.effects()).sort()).toEqual(innocent.map(({ id }) => id).sort());
  expect(await parkedRows(world)).toMatchObject([{ event_id: 'b', reason: 'process-death' }]);
});

test('a process that ends in order leaves no mark, and one that is killed without a running record blames nobody', async () => {
  const world = await testWorld();
  const topic = await world.topic();
  await world.send(topic, { id: 'a' });
  const orderly = testWorker(world, { topic });
  await world.untilCommitted(topic, 1);
  expect(await marks(world)).toMatchObject([{ record_offset: '0', deaths: 0 }]);
  orderly.signal('SIGTERM');
  await orderly.untilEnded();
  expect(await marks(world)).toEqual([]);

  for (let killed = 0; killed < 4; killed += 1) {
    const worker = testWorker(world, { topic });
    await world.send(topic, { id: `k${killed}` });
    await world.untilCommitted(topic, 2 + killed);
    await worker.kill();
  }
  const last = testWorker(world, { topic });
  await world.send(topic, { id: 'z' });
  await until(() => last.calls.includes('z'), { what: 'the last event', timeoutMs: 30_000 });
  await world.untilCommitted(topic, 6);
  expect(await parkedRows(world)).toEqual([]);
  expect(await world.effects()).toEqual(['a', 'k0', 'k1', 'k2', 'k3', 'z']);
});

test('a mark that cannot be written holds its record back, counts for nothing and parks nothing', async () => {
  const world = await testWorld();
  const topic = await world.topic();
  const service = await testService(world, {
    options: { timeout: 300, retry: { attempts: 2, delay: 10, factor: 1, jitter: 'none' } },
    controllers: [eventHandler(topic, ({ id }, tools) => writeEffect(tools, id))],
  });
  await until(() => service.named('assigned').length > 0, { what: 'the join' });
  const session = await testSession(world);
  await session.startTransaction();
  await session.query('LOCK TABLE running_records IN ACCESS EXCLUSIVE MODE');
  await world.send(topic, { id: 'a' });
  await until(() => service.named('failed').length >= 3, { what: 'more failures than attempts', timeoutMs: 30_000 });
  expect(await world.effects()).toEqual([]);
  await session.rollbackTransaction();
  await world.untilCommitted(topic, 1);
  expect(await world.effects()).toEqual(['a']);
  expect(await parkedRows(world)).toEqual([]);
});

test('a record that three processes died of is parked for a handler without @Idempotent too', async () => {
  const world = await testWorld();
  const topic = await world.topic();
  const seen: string[] = [];
  @Controller()
  class Plain {
    @OnTopic(topic)
    handle(@Payload() { id }: TestEvent) {
      seen.push(id);
    }
  }
  await world.db.query(
    `INSERT INTO running_records (group_id, topic, partition, record_offset, instance, deaths) VALUES ($1, $2, 0, 0, gen_random_uuid(), 2)`,
    [world.group, topic],
  );
  const service = await testService(world, { controllers: [Plain] });
  await world.send(topic, { id: 'killer' }, { id: 'b' });
  await world.untilCommitted(topic, 2);
  expect(seen).toEqual(['b']);
  expect(service.named('outage')).toEqual([]);
  expect(await parkedRows(world)).toMatchObject([{ consumer: 'Plain.handle', reason: 'process-death' }]);
});
