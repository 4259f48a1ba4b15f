import { Controller, Inject, Scope, type Type } from '@nestjs/common';
import { Payload } from '@nestjs/microservices';
import { DataSource, EventSubscriber, type EntitySubscriberInterface, type InsertEvent } from 'typeorm';
import { expect, test } from 'vitest';
import { Idempotent } from 'nestjs-kafka-idempotency';
import { idempotencyEntities } from 'nestjs-kafka-idempotency/schema';
import { until } from 'nestjs-kafka-idempotency/testing';
import { eventHandler, Gate, writeEffect, type TestEvent } from './kit/handlers.js';
import { testService, testWorld } from './kit/in-test.js';
import { OnTopic } from './kit/service.js';

function scopedHandler(topic: string, consumer: string, scope: Scope, before: (id: string) => Promise<void>): Type {
  @Controller({ scope })
  class Handlers {
    constructor(@Inject(DataSource) readonly dataSource: DataSource) {}

    @OnTopic(topic)
    @Idempotent({ consumer })
    async handle(@Payload() { id }: TestEvent) {
      await before(id);
      await writeEffect(this, id, consumer);
    }
  }
  return Handlers;
}

const scopes = { singleton: Scope.DEFAULT, 'request-scoped': Scope.REQUEST };

test.each([
  ['singleton', 'singleton'],
  ['singleton', 'request-scoped'],
  ['request-scoped', 'singleton'],
  ['request-scoped', 'request-scoped'],
] as const)(
  'B15 two handlers of one topic (%s and %s) both run, and the offset moves behind the second',
  async (one, two) => {
    const world = await testWorld();
    const topic = await world.topic(2);
    const gate = new Gate();
    const service = await testService(world, {
      controllers: [
        scopedHandler(topic, 'one', scopes[one], () => Promise.resolve()),
        scopedHandler(topic, 'two', scopes[two], (id) => (id === 'a' ? gate.passed : Promise.resolve())),
      ],
    });
    await world.send(topic, { id: 'a', partition: 0 });
    await until(() => service.named('claimed').some(({ consumer }) => consumer === 'two'), {
      what: 'the second handler',
    });
    expect(await world.effects()).toEqual(['a']);
    // One request commits all partitions: an offset that was finished too early would be in it.
    await world.send(topic, { id: 'b', partition: 1 });
    await world.untilCommitted(topic, 1, 1);
    expect(await world.committed(topic, 0)).toBe(0n);
    gate.open();
    await world.untilCommitted(topic, 1, 0);
    expect((await world.effects('one')).sort()).toEqual(['a', 'b']);
    expect((await world.effects('two')).sort()).toEqual(['a', 'b']);
    expect(await world.processed()).toEqual(['one/a', 'one/b', 'two/a', 'two/b']);
  },
);

test('B16 a handler that fails does not make the other one run again', async () => {
  const world = await testWorld();
  const topic = await world.topic();
  const calls: string[] = [];
  await testService(world, {
    controllers: ['one', 'two'].map((consumer) =>
      eventHandler(
        topic,
        async ({ id }, tools) => {
          calls.push(consumer);
          await writeEffect(tools, id, consumer);
          if (consumer === 'two' && calls.length === 2) throw new Error('once');
        },
        { consumer },
      ),
    ),
  });
  await world.send(topic, { id: 'a' });
  await world.untilCommitted(topic, 1);
  expect(calls).toEqual(['one', 'two', 'two']);
  expect(await world.effects('one')).toEqual(['a']);
  expect(await world.effects('two')).toEqual(['a']);
});

test('B16 two services with consumers of their own on one database both process the event', async () => {
  const world = await testWorld();
  const topic = await world.topic();
  for (const name of ['billing', 'shipping'])
    await testService(
      { schema: world.schema, brokers: world.brokers, databaseUrl: world.databaseUrl, group: `${world.group}-${name}` },
      { controllers: [eventHandler(topic, ({ id }, tools) => writeEffect(tools, id, name), { consumer: name })] },
    );
  await world.send(topic, { id: 'a' });
  await world.untilCommitted(topic, 1, 0, `${world.group}-billing`);
  await world.untilCommitted(topic, 1, 0, `${world.group}-shipping`);
  expect(await world.effects('billing')).toEqual(['a']);
  expect(await world.effects('shipping')).toEqual(['a']);
  expect(await world.processed()).toEqual(['billing/a', 'shipping/a']);
});

test('B17 the claim tells a duplicate by its row count, and no entity subscriber hears of it', async () => {
  const world = await testWorld();
  const topic = await world.topic();
  const inserted: unknown[] = [];

  @EventSubscriber()
  class Everything implements EntitySubscriberInterface {
    beforeInsert(event: InsertEvent<unknown>): void {
      inserted.push(event.metadata.tableName);
    }
    afterInsert(event: InsertEvent<unknown>): void {
      inserted.push(event.metadata.tableName);
    }
  }
  const calls: string[] = [];
  const service = await testService(world, {
    typeOrm: { entities: [...idempotencyEntities], subscribers: [Everything] },
    controllers: [
      eventHandler(topic, async ({ id }, tools) => {
        calls.push(id);
        await writeEffect(tools, id);
      }),
    ],
  });
  await world.send(topic, { id: 'a' }, { id: 'a' });
  await world.untilCommitted(topic, 2);
  expect(calls).toEqual(['a']);
  expect(service.named('duplicate')).toMatchObject([{ offset: '1', eventId: 'a' }]);
  expect(await world.processed()).toEqual(['test/a']);
  expect(inserted).toEqual([]);
});
