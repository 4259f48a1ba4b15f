import { expect, test } from 'vitest';
import { until } from 'nestjs-kafka-idempotency/testing';
import { eventHandler, writeEffect } from './kit/handlers.js';
import { testService, testWorld } from './kit/in-test.js';
import { idempotencyOptions } from './kit/service.js';

test('B22 a topic that is missing at the start is waited for by name and consumed once it exists', async () => {
  const world = await testWorld();
  const topic = world.topicName();
  const service = await testService(world, {
    controllers: [eventHandler(topic, ({ id }, tools) => writeEffect(tools, id))],
  });
  const reason = await until(() => service.server.health().reasons.find(({ code }) => code === 'TOPIC_MISSING'), {
    what: 'the reason',
  });
  expect(reason.detail).toContain(topic);
  expect(service.server.health()).toMatchObject({ live: true, ready: false });

  await world.createTopic(topic);
  await world.send(topic, { id: 'a' });
  await world.untilCommitted(topic, 1);
  expect(await world.effects()).toEqual(['a']);
  expect(service.server.health()).toMatchObject({ ready: true, reasons: [] });
});

test('B22 topics that exist are consumed while another one is missing', async () => {
  const world = await testWorld();
  const present = await world.topic(1, 'present');
  const missing = world.topicName('missing');
  const service = await testService(world, {
    controllers: [
      eventHandler(present, ({ id }, tools) => writeEffect(tools, id), { consumer: 'present' }),
      eventHandler(missing, ({ id }, tools) => writeEffect(tools, id), { consumer: 'missing' }),
    ],
  });
  await world.send(present, { id: 'a' });
  await world.untilCommitted(present, 1);
  expect(service.server.health().ready).toBe(true);
  await world.createTopic(missing);
  await world.send(missing, { id: 'b' });
  await world.untilCommitted(missing, 1);
  expect(await world.effects()).toEqual(['a', 'b']);
});

test('B23 a regular expression gets every topic it matches, later ones too, beside the exact handler of one of them', async () => {
  const world = await testWorld();
  const name = (suffix: string) => `${world.group}.orders.${suffix}`;
  await world.createTopic(name('a'));
  await world.createTopic(name('b'));
  const pattern = new RegExp(`^${world.group}\\.orders\\..*`, 'g');
  const service = await testService(world, {
    controllers: [
      eventHandler(pattern as never, ({ id }, tools) => writeEffect(tools, id, 'pattern'), { consumer: 'pattern' }),
      eventHandler(name('a'), ({ id }, tools) => writeEffect(tools, id, 'exact'), { consumer: 'exact' }),
    ],
  });
  await world.send(name('a'), { id: 'a1' }, { id: 'a2' });
  await world.send(name('b'), { id: 'b1' });
  await world.untilCommitted(name('a'), 2);
  await world.untilCommitted(name('b'), 1);
  await world.createTopic(name('c'));
  await world.send(name('c'), { id: 'c1' });
  await world.untilCommitted(name('c'), 1);
  expect((await world.effects('pattern')).sort()).toEqual(['a1', 'a2', 'b1', 'c1']);
  expect(await world.effects('exact')).toEqual(['a1', 'a2']);
  expect(service.named('failed')).toEqual([]);
});

test('B21 the group is the configured id and postfix, and a changed postfix keeps what was deduplicated', async () => {
  const world = await testWorld();
  const topic = await world.topic();
  const handler = eventHandler(topic, ({ id }, tools) => writeEffect(tools, id));
  const first = await testService(world, { controllers: [handler] });
  expect(first.server.groupId).toBe(world.group);
  await world.send(topic, { id: 'a' });
  await world.untilCommitted(topic, 1);
  await first.close();

  const options = idempotencyOptions(world);
  const second = await testService(world, {
    controllers: [handler],
    options: { kafka: { ...options.kafka, postfixId: '-server' } },
  });
  expect(second.server.groupId).toBe(`${world.group}-server`);
  await world.untilCommitted(topic, 1, 0, `${world.group}-server`);
  expect(second.named('duplicate')).toHaveLength(1);
  expect(await world.effects()).toEqual(['a']);
});

test('B52 after a restart nothing is delivered again, and the group stands at the end of the log', async () => {
  const world = await testWorld();
  const topic = await world.topic();
  const handler = eventHandler(topic, ({ id }, tools) => writeEffect(tools, id));
  await world.send(topic, ...Array.from({ length: 42 }, (_, at) => ({ id: `e${at}` })));
  const first = await testService(world, { controllers: [handler] });
  await world.untilCommitted(topic, 42);
  await first.close();
  const second = await testService(world, { controllers: [handler] });
  await world.send(topic, { id: 'last' });
  await world.untilCommitted(topic, 43);
  expect(second.named('received').map(({ eventId, offset }) => [eventId, offset])).toEqual([[undefined, '42']]);
});

test('records written while nobody consumed are not skipped after a first start without fromBeginning', async () => {
  const world = await testWorld();
  const topic = await world.topic();
  await world.send(topic, { id: 'before' });
  const handler = eventHandler(topic, ({ id }, tools) => writeEffect(tools, id));
  const options = { kafka: { subscribe: { fromBeginning: false } } };
  const first = await testService(world, { controllers: [handler], options });
  await world.untilCommitted(topic, 1); // the first position, before any record came
  await first.close();
  await world.send(topic, { id: 'meanwhile' });
  await testService(world, { controllers: [handler], options });
  await world.untilCommitted(topic, 2);
  expect(await world.effects()).toEqual(['meanwhile']);
});

test('a topic that is deleted and made anew is read from its beginning', async () => {
  const world = await testWorld();
  const topic = await world.topic();
  const handler = eventHandler(topic, ({ id }, tools) => writeEffect(tools, id));
  await world.send(topic, { id: 'a' }, { id: 'b' }, { id: 'c' });
  await testService(world, {
    controllers: [handler],
    options: { kafka: { consumer: { groupId: world.group, metadataMaxAge: 500 } } },
  });
  await world.untilCommitted(topic, 3);
  await world.admin.deleteTopics({ topics: [topic] });
  await until(async () => !(await world.admin.listTopics()).includes(topic), { what: 'the topic to be gone' });
  await world.createTopic(topic);
  await world.send(topic, { id: 'new' });
  await world.untilEffects(4);
  await world.untilCommitted(topic, 1);
  expect(await world.effects()).toEqual(['a', 'b', 'c', 'new']);
});

test('aborted transactions and control records are passed over, and the group reaches the end of the log', async () => {
  const world = await testWorld();
  const topic = await world.topic();
  const service = await testService(world, {
    controllers: [eventHandler(topic, ({ id }, tools) => writeEffect(tools, id))],
  });
  const producer = world.kafka.producer({ transactionalId: world.group, idempotent: true, maxInFlightRequests: 1 });
  await producer.connect();
  for (const [id, end] of [
    ['a', 'commit'],
    ['b', 'commit'],
    ['lost', 'abort'],
  ] as const) {
    const transaction = await producer.transaction();
    await transaction.send({ topic, messages: [{ value: JSON.stringify({ id }), headers: { 'event-id': id } }] });
    await transaction[end]();
  }
  await producer.disconnect();
  await world.untilCommitted(topic, 6);
  expect(await world.effects()).toEqual(['a', 'b']);
  expect(service.named('failed')).toEqual([]);
});

test('a backlog far over the buffer is read with pauses, completely and in order', async () => {
  const world = await testWorld();
  const topic = await world.topic();
  const ids = Array.from({ length: 600 }, (_, at) => `e${at}`);
  for (let at = 0; at < ids.length; at += 100)
    await world.send(topic, ...ids.slice(at, at + 100).map((id) => ({ id })));
  const service = await testService(world, {
    controllers: [eventHandler(topic, ({ id }, tools) => writeEffect(tools, id))],
    options: { buffer: { records: 50 }, kafka: { consumer: { groupId: world.group, maxBytesPerPartition: 5000 } } },
  });
  let most = 0;
  await until(
    async () => {
      most = Math.max(most, ...service.server.health().partitions.map(({ buffered }) => buffered));
      return (await world.committed(topic)) === 600n;
    },
    { what: 'the backlog to be committed', timeoutMs: 30_000 },
  );
  expect(await world.effects()).toEqual(ids);
  expect(most).toBeLessThan(200);
});
