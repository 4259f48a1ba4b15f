import { Controller, Inject, Module, type Type } from '@nestjs/common';
import { NestFactory } from '@nestjs/core';
import { Payload } from '@nestjs/microservices';
import { expect, onTestFinished, test } from 'vitest';
import {
  currentDelivery,
  EventPublisher,
  Idempotent,
  IdempotentBatch,
  Outbox,
  TransactionScope,
  type IdempotencyOptions,
} from 'nestjs-kafka-idempotency';
import { until } from 'nestjs-kafka-idempotency/testing';
import type { TestEvent } from './kit/handlers.js';
import { testService, testWorld } from './kit/in-test.js';
import { OnTopic, serviceModule, testLogger } from './kit/service.js';
import type { World } from './kit/world.js';

const events = (count: number) => Array.from({ length: count }, (_, at) => ({ id: `e${at}`, key: `k${at % 3}` }));

/** Publishes each event again; the first attempt of `e1` fails when it has published. */
function forwarder(from: string, to: string): Type {
  @Controller()
  class Forwarder {
    constructor(@Inject(EventPublisher) private readonly publisher: EventPublisher) {}

    @OnTopic(from)
    @Idempotent({ consumer: 'test' })
    async forward(@Payload() event: TestEvent) {
      await this.publisher.publish(to, { of: event.id }, { key: event.id });
      if (event.id === 'e1' && currentDelivery()?.attempt === 1) throw new Error('not yet');
    }
  }
  return Forwarder;
}

async function forwarded(world: World, to: string, count: number): Promise<string[]> {
  await until(async () => (await read(world, to)).length >= count, { what: 'the forwarded events', timeoutMs: 30_000 });
  return (await read(world, to)).toSorted();
}

async function read(world: World, topic: string): Promise<string[]> {
  const rows = await world.db.query<{ n: string }[]>('SELECT count(*) AS n FROM outbox_messages');
  if (rows[0]?.n !== '0') return [];
  const consumer = world.kafka.consumer({ groupId: `read-${Math.random()}`, maxWaitTimeInMs: 100 });
  const found: string[] = [];
  const ends = await world.admin.fetchTopicOffsets(topic);
  const count = ends.reduce((sum, { high }) => sum + Number(high), 0);
  await consumer.connect();
  await consumer.subscribe({ topics: [topic], fromBeginning: true });
  await consumer.run({
    eachMessage: async ({ message }) => void found.push((JSON.parse(String(message.value)) as { of: string }).of),
  });
  await until(() => found.length >= count, { what: 'the topic to be read', timeoutMs: 20_000 });
  await consumer.disconnect();
  return found;
}

test.each<[string, Partial<IdempotencyOptions>]>([
  ['alone', {}],
  ['in shared transactions', { messagesPerTransaction: 50 }],
  ['in the window', { durability: 'window' }],
  ['with keys at once', { concurrency: { keys: 4 } }],
])(
  'what a handler publishes is sent once for each event it handles, %s; nothing of a failed attempt is',
  async (_, options) => {
    const world = await testWorld();
    const [from, to] = [await world.topic(2), await world.topic(2)];
    await world.send(from, ...events(100));
    await testService(world, { controllers: [forwarder(from, to)], options });
    expect(await forwarded(world, to, 100)).toEqual(
      events(100)
        .map(({ id }) => id)
        .toSorted(),
    );
  },
);

test('a batch handler publishes in the transaction of its batch', async () => {
  const world = await testWorld();
  const [from, to] = [await world.topic(), await world.topic()];
  await world.send(from, ...events(100));
  let calls = 0;
  @Controller()
  class Forwarder {
    constructor(@Inject(EventPublisher) private readonly publisher: EventPublisher) {}

    @OnTopic(from)
    @IdempotentBatch({ consumer: 'test', maxWait: '200ms' })
    async forward(@Payload() batch: TestEvent[]) {
      calls += 1;
      for (const { id } of batch) await this.publisher.publish(to, { of: id }, { key: id });
      if (calls === 1) throw new Error('not yet');
    }
  }
  await testService(world, { controllers: [Forwarder] });
  expect(await forwarded(world, to, 100)).toEqual(
    events(100)
      .map(({ id }) => id)
      .toSorted(),
  );
});

test('an application context with the module alone is a relay process; one with relay false only writes', async () => {
  const world = await testWorld();
  const to = await world.topic();
  const start = async (options: Partial<IdempotencyOptions>) => {
    @Module({ imports: [serviceModule(world, { controllers: [], options })] })
    class Root {}
    const app = await NestFactory.createApplicationContext(Root, { logger: testLogger() });
    onTestFinished(() => app.close());
    return app;
  };
  const writer = await start({ outbox: { relay: false } });
  const publisher = writer.get(EventPublisher);
  await writer.get(TransactionScope).run(() => publisher.publish(to, { of: 'x' }));
  expect(await writer.get(Outbox).stats()).toMatchObject({ pending: 1 });
  await start({});
  expect(await forwarded(world, to, 1)).toEqual(['x']);
});

test('an application whose tables were made before the outbox starts as ever; one that asks for it does not', async () => {
  const world = await testWorld();
  await world.db.query('DROP VIEW outbox_events');
  await world.db.query('DROP TABLE outbox_messages, outbox_shards, outbox_dedupe');
  const from = await world.topic();
  await world.send(from, { id: 'e0' });
  const controllers = [forwarder(from, 'nowhere')];
  const service = await testService(world, { controllers });
  await until(() => service.failures[0], { what: 'the refused publish' });
  expect(service.failures[0]).toMatch(/SCHEMA_MISSING/);
  await expect(testService(world, { controllers, options: { outbox: {} } })).rejects.toMatchObject({
    code: 'SCHEMA_MISSING',
  });
});
