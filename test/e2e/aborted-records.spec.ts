import type { Message } from 'kafkajs';
import { expect, onTestFinished, test } from 'vitest';
import { eventHandler, writeEffect } from './kit/handlers.js';
import { testService, testWorld } from './kit/in-test.js';
import type { World } from './kit/world.js';

/** An int32 of 0, as a key: the mark of an aborted transaction has the same. */
const ZERO = Buffer.from([0, 0, 0, 0]);

function message(id: string, key?: Buffer): Message {
  return { value: JSON.stringify({ id }), headers: { 'event-id': id }, ...(key === undefined ? {} : { key }) };
}

async function transactionOf(world: World, name: string) {
  const producer = world.kafka.producer({
    transactionalId: `${world.group}-${name}`,
    idempotent: true,
    maxInFlightRequests: 1,
  });
  await producer.connect();
  onTestFinished(() => producer.disconnect());
  return producer.transaction();
}

test('records of aborted transactions reach no handler, in whatever order transactions of several producers began and ended', async () => {
  const world = await testWorld();
  const topic = await world.topic();
  const [first, second, third] = [
    await transactionOf(world, 'first'),
    await transactionOf(world, 'second'),
    await transactionOf(world, 'third'),
  ];
  await first.send({ topic, messages: [message('lost 1', ZERO), message('lost 2')] });
  await second.send({ topic, messages: [message('lost 3')] });
  await third.send({ topic, messages: [message('kept 1'), message('kept 2', ZERO)] });
  await second.send({ topic, messages: [message('lost 4')] });
  await second.abort(); // it began second and ends first
  await first.send({ topic, messages: [message('lost 5')] });
  await third.commit();
  await first.abort();
  await world.send(topic, { id: 'kept 3' });

  const service = await testService(world, {
    controllers: [eventHandler(topic, ({ id }, tools) => writeEffect(tools, id))],
  });
  await world.untilAtEnd(topic);
  expect(await world.effects()).toEqual(['kept 1', 'kept 2', 'kept 3']);
  expect(service.named('received')).toHaveLength(3);
});
