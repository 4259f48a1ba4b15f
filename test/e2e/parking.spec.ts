import { Controller, Inject, Injectable, Scope, UsePipes, ValidationPipe, type Type } from '@nestjs/common';
import { CONTEXT, Payload, type RequestContext } from '@nestjs/microservices';
import { IsInt } from 'class-validator';
import { DataSource } from 'typeorm';
import { expect, test } from 'vitest';
import { currentDelivery, Idempotent, IdempotencyHealth, NonRetryableError } from 'nestjs-kafka-idempotency';
import { until } from 'nestjs-kafka-idempotency/testing';
import { eventHandler, writeEffect, type TestEvent } from './kit/handlers.js';
import { testService, testSession, testWorld } from './kit/in-test.js';
import { parkedRows } from './kit/parked.js';
import { OnTopic } from './kit/service.js';

const THREE = { attempts: 3, delay: 30, factor: 1, jitter: 'none' } as const;

/** Fails at the events named, else writes their effect. */
function failingAt(topic: string, ids: readonly string[], error: () => unknown = () => new Error('no')): Type {
  return eventHandler(topic, async ({ id }, tools) => {
    await writeEffect(tools, id);
    if (ids.includes(id)) throw error();
  });
}

test('B04 a bug in the handler: three attempts, then the event is parked and the others go on', async () => {
  const world = await testWorld();
  const topic = await world.topic();
  const service = await testService(world, {
    options: { retry: THREE },
    controllers: [failingAt(topic, ['a'], () => new TypeError('x is undefined'))],
  });
  await world.send(topic, { id: 'a' }, { id: 'b' });
  await world.untilCommitted(topic, 2);
  expect(await world.effects()).toEqual(['b']);
  expect(await world.processed()).toEqual(['test/b']);
  expect(service.named('failed').map(({ attempt }) => attempt)).toEqual([1, 2, 3]);
  expect(service.named('parked')).toMatchObject([{ state: 'dead', reason: 'exhausted', offset: '0', eventId: 'a' }]);
  const [row, ...more] = await parkedRows(world);
  expect(more).toEqual([]);
  expect(row).toMatchObject({
    state: 'dead',
    consumer: 'test',
    event_id: 'a',
    reason: 'exhausted',
    error_code: 'HANDLER_FAILED',
    error_message: 'x is undefined',
    attempts: 3,
  });
  expect(row?.history).toHaveLength(3);
  expect((await service.app.get(IdempotencyHealth).check()).reasons).toEqual([]);
});

test('B05 a payload that validation refuses is parked after one attempt, without the handler', async () => {
  class Order {
    @IsInt() qty!: number;
  }
  const world = await testWorld();
  const topic = await world.topic();
  const handled: unknown[] = [];
  @Controller()
  class Handlers {
    constructor(@Inject(DataSource) readonly dataSource: DataSource) {}
    @OnTopic(topic)
    @Idempotent({ consumer: 'test' })
    @UsePipes(new ValidationPipe({ whitelist: true, expectedType: Order }))
    async handle(@Payload() order: Order) {
      handled.push(order.qty);
      await writeEffect(this, currentDelivery()?.eventId ?? '');
    }
  }
  await testService(world, { options: { retry: THREE }, controllers: [Handlers as Type] });
  await world.sendRaw(
    topic,
    { value: '{"qty":"x"}', headers: { 'event-id': 'e1' } },
    { value: '{"qty":2}', headers: { 'event-id': 'e2' } },
  );
  await world.untilCommitted(topic, 2);
  expect(handled).toEqual([2]);
  expect(await world.processed()).toEqual(['test/e2']);
  expect(await world.effects()).toEqual(['e2']);
  expect(await parkedRows(world)).toMatchObject([
    { event_id: 'e1', reason: 'permanent', error_code: 'VALIDATION_FAILED', attempts: 1, state: 'dead' },
  ]);
});

test('F37 poison of every kind is parked with its reason, after as many attempts as can help', async () => {
  const world = await testWorld();
  const topic = await world.topic();
  await testService(world, {
    options: { retry: THREE },
    controllers: [
      eventHandler(topic, async ({ id }, tools) => {
        if (id === 'throws') throw new Error('always');
        if (id === 'final') throw new Error('outer', { cause: new NonRetryableError('no such account') });
        await writeEffect(tools, id);
      }),
    ],
  });
  const headers = (id: string) => ({ 'event-id': id });
  await world.sendRaw(
    topic,
    { value: '{"a":1', headers: headers('broken') },
    { value: '{"id":"no header"}' },
    { value: '{"id":"twice"}', headers: { 'event-id': ['x', 'y'] } },
    { value: '{"id":"throws"}', headers: headers('throws') },
    { value: '{"id":"final"}', headers: headers('final') },
    { value: '{"id":"good"}', headers: headers('good') },
  );
  await world.untilCommitted(topic, 6);
  expect(await world.effects()).toEqual(['good']);
  const rows = await parkedRows(world);
  expect(rows.map(({ reason, error_code, attempts, event_id }) => [reason, error_code, attempts, event_id])).toEqual([
    ['decoding', 'DECODE_FAILED', 1, null],
    ['missing-id', 'ID_MISSING', 1, null],
    ['missing-id', 'ID_INVALID', 1, null],
    ['exhausted', 'HANDLER_FAILED', 3, 'throws'],
    ['permanent', 'NON_RETRYABLE', 1, 'final'],
  ]);
});

test('B43 of broken JSON the bytes are kept, and the handler never sees half of it', async () => {
  const world = await testWorld();
  const topic = await world.topic();
  const seen: unknown[] = [];
  await testService(world, { controllers: [eventHandler<unknown>(topic, (event) => void seen.push(event))] });
  const values = ['{"a":1', '123', '"x"', '[1', '\uFEFF{}'];
  await world.sendRaw(topic, ...values.map((value, at) => ({ value, headers: { 'event-id': `e${at}` } })));
  await world.untilCommitted(topic, 5);
  expect(seen).toEqual([123, 'x', {}]);
  expect((await parkedRows(world)).map(({ value }) => value?.toString())).toEqual(['{"a":1', '[1']);
});

test('B13 B14 B08 what is parked are the bytes themselves, whatever the handler did to its input', async () => {
  const world = await testWorld();
  const topic = await world.topic();
  await testService(world, {
    options: { retry: THREE },
    controllers: [
      eventHandler<Buffer | null>(
        topic,
        (event) => {
          event?.fill(0);
          currentDelivery()?.key?.fill(0);
          for (const values of currentDelivery()?.headers.values() ?? []) values.forEach((value) => value.fill(0));
          throw new Error('no');
        },
        { decode: 'bytes' },
      ),
    ],
  });
  const key = Buffer.from('fffe01', 'hex');
  const value = Buffer.from('00000000' + '0780ff', 'hex');
  await world.sendRaw(
    topic,
    { key, value, headers: { 'event-id': 'e1', trace: ['one', 'two'], bin: Buffer.from('80ff', 'hex') } },
    { key: null, value: null, headers: { 'event-id': 'e2' } },
  );
  await world.untilCommitted(topic, 2);
  const [full, empty] = await parkedRows(world);
  expect(full).toMatchObject({ key, value, header_names: ['event-id', 'trace', 'trace', 'bin'] });
  expect(full?.header_values).toEqual(
    ['e1', 'one', 'two'].map((text) => Buffer.from(text)).concat(Buffer.from('80ff', 'hex')),
  );
  expect(empty).toMatchObject({ key: null, value: null, header_names: ['event-id'] });
});

test('B24 a provider that fails in its constructor: three attempts, then parked', async () => {
  const world = await testWorld();
  const topic = await world.topic();
  @Injectable({ scope: Scope.REQUEST })
  class PerEvent {
    constructor(@Inject(CONTEXT) { data }: RequestContext<TestEvent>) {
      if (data?.id === 'a') throw new Error('cannot be built');
    }
  }
  @Controller()
  class Handlers {
    constructor(
      @Inject(DataSource) readonly dataSource: DataSource,
      @Inject(PerEvent) readonly perEvent: PerEvent,
    ) {}
    @OnTopic(topic)
    @Idempotent({ consumer: 'test' })
    async handle(@Payload() { id }: TestEvent) {
      await writeEffect(this, id);
    }
  }
  await testService(world, { options: { retry: THREE }, controllers: [Handlers as Type], providers: [PerEvent] });
  await world.send(topic, { id: 'a' });
  await world.untilCommitted(topic, 1);
  expect(await world.processed()).toEqual([]);
  expect(await parkedRows(world)).toMatchObject([{ reason: 'exhausted', attempts: 3 }]);
});

test('B37 attempts are counted per record: good records of another partition reset nothing', async () => {
  const world = await testWorld();
  const topic = await world.topic(2);
  const service = await testService(world, {
    options: { retry: { ...THREE, delay: 150 } },
    controllers: [failingAt(topic, ['poison'])],
  });
  await world.send(topic, { id: 'poison', partition: 0 });
  let sent = 0;
  await until(
    async () => {
      await world.send(topic, { id: `g${(sent += 1)}`, partition: 1 });
      return service.named('parked').length === 1;
    },
    { what: 'the poison to be parked', intervalMs: 50 },
  );
  await world.untilCommitted(topic, 1, 0);
  await world.untilCommitted(topic, sent, 1);
  expect(service.named('failed')).toHaveLength(3);
  expect(await parkedRows(world)).toMatchObject([{ event_id: 'poison', attempts: 3 }]);
  expect(await world.effects()).toHaveLength(sent);
});

test('B01 while an event cannot be parked its offset stays and nothing behind it begins', async () => {
  const world = await testWorld();
  const topic = await world.topic();
  const service = await testService(world, { options: { retry: THREE }, controllers: [failingAt(topic, ['a'])] });
  await until(() => service.named('assigned').length > 0, { what: 'the join' });
  const session = await testSession(world);
  await session.startTransaction();
  await session.query('LOCK TABLE parked_events IN EXCLUSIVE MODE');
  await world.send(topic, { id: 'a' }, { id: 'b' });
  await until(() => service.named('failed').length === 3, { what: 'three failures' });
  await until(
    async () =>
      (
        (await session.query(
          `SELECT 1 FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND query LIKE '%INTO%parked_events%'`,
        )) as unknown[]
      ).length > 0,
    { what: 'the parking to wait' },
  );
  expect(await world.committed(topic)).toBe(0n);
  expect(await world.effects()).toEqual([]);
  await session.rollbackTransaction();
  await world.untilCommitted(topic, 2);
  expect(await world.effects()).toEqual(['b']);
  expect(await parkedRows(world)).toMatchObject([{ event_id: 'a' }]);
});

test('a record that Kafka delivers again while it is parked is neither run nor parked again', async () => {
  const world = await testWorld();
  const topic = await world.topic();
  const options = { options: { retry: THREE }, controllers: [failingAt(topic, ['a'])] };
  const first = await testService(world, options);
  await world.send(topic, { id: 'a' }, { id: 'b' });
  await world.untilCommitted(topic, 2);
  await first.close();
  await world.admin.setOffsets({ groupId: world.group, topic, partitions: [{ partition: 0, offset: '0' }] });
  const second = await testService(world, options);
  await world.send(topic, { id: 'c' });
  await world.untilCommitted(topic, 3);
  expect(second.named('received').map(({ offset }) => offset)).toEqual(['1', '2']);
  expect(await world.effects()).toEqual(['b', 'c']);
  expect(await parkedRows(world)).toHaveLength(1);
});

test('each handler of a topic parks for itself', async () => {
  const world = await testWorld();
  const topic = await world.topic();
  const other = eventHandler(topic, ({ id }, tools) => writeEffect(tools, id, 'other'), { consumer: 'other' });
  await testService(world, { options: { retry: THREE }, controllers: [failingAt(topic, ['a']), other] });
  await world.send(topic, { id: 'a' });
  await world.untilCommitted(topic, 1);
  expect(await world.effects()).toEqual(['a']);
  expect(await world.processed()).toEqual(['other/a']);
  expect(await parkedRows(world)).toMatchObject([{ consumer: 'test' }]);
});

test('classify decides, also against the built-in rules', async () => {
  const world = await testWorld();
  const topic = await world.topic();
  const service = await testService(world, {
    options: { retry: THREE, classify: (error) => ((error as Error).message === 'final' ? 'permanent' : 'transient') },
    controllers: [
      eventHandler(topic, ({ id }) => {
        throw id === 'a' ? new Error('final') : new NonRetryableError('not so');
      }),
    ],
  });
  await world.send(topic, { id: 'a' }, { id: 'b' });
  await world.untilCommitted(topic, 2);
  expect((await parkedRows(world)).map(({ reason, attempts }) => [reason, attempts])).toEqual([
    ['permanent', 1],
    ['exhausted', 3],
  ]);
  expect(service.named('failed')).toHaveLength(4);
});

test('B42 an event with reply headers is parked like any other, and nothing is sent to the reply topic', async () => {
  const world = await testWorld();
  const [topic, replies] = [await world.topic(), await world.topic(1, '.reply')];
  await testService(world, { options: { retry: THREE }, controllers: [failingAt(topic, ['a'])] });
  await world.send(topic, { id: 'a', headers: { kafka_correlationId: 'c', kafka_replyTopic: replies } });
  await world.untilCommitted(topic, 1);
  expect(await parkedRows(world)).toMatchObject([{ attempts: 3 }]);
  expect(await world.admin.fetchTopicOffsets(replies)).toMatchObject([{ high: '0' }]);
});

test('a handler without @Idempotent is retried and parked under its class and method', async () => {
  const world = await testWorld();
  const topic = await world.topic();
  @Controller()
  class Plain {
    @OnTopic(topic)
    handle() {
      throw new Error('no');
    }
  }
  await testService(world, { options: { retry: THREE }, controllers: [Plain] });
  await world.send(topic, { id: 'a' });
  await world.untilCommitted(topic, 1);
  expect(await parkedRows(world)).toMatchObject([{ consumer: 'Plain.handle', attempts: 3, event_id: null }]);
});
