import { Controller, Inject, UsePipes, ValidationPipe, type Type } from '@nestjs/common';
import { Ctx, KafkaContext, Payload } from '@nestjs/microservices';
import { IsInt } from 'class-validator';
import { DataSource } from 'typeorm';
import { expect, test } from 'vitest';
import { currentDelivery, Idempotent, position, recordKey } from 'nestjs-kafka-idempotency';
import { until } from 'nestjs-kafka-idempotency/testing';
import { eventHandler, writeEffect, type TestEvent } from './kit/handlers.js';
import { testService, testWorld } from './kit/in-test.js';
import { parkedRows } from './kit/parked.js';
import { OnTopic } from './kit/service.js';

test('B08 tombstones, missing keys and headers, and empty values are events like others', async () => {
  const world = await testWorld();
  const topic = await world.topic();
  const seen: { payload: unknown; raw: string | undefined; key: unknown; headers: unknown }[] = [];
  const service = await testService(world, {
    controllers: [
      eventHandler<unknown>(
        topic,
        (payload, { context }) => {
          const { key, headers } = context.getMessage();
          seen.push({ payload, raw: currentDelivery()?.value?.toString(), key, headers });
        },
        { id: position() },
      ),
    ],
  });
  await world.sendRaw(topic, { key: 'k', value: null }, { value: null }, { value: Buffer.alloc(0) }, { value: 'null' });
  await world.untilCommitted(topic, 4);
  expect(seen).toEqual([
    { payload: null, raw: undefined, key: 'k', headers: {} },
    { payload: null, raw: undefined, key: null, headers: {} },
    { payload: '', raw: '', key: null, headers: {} },
    { payload: null, raw: 'null', key: null, headers: {} },
  ]);
  expect(await world.processed()).toHaveLength(4);
  expect(service.failures).toEqual([]);
});

test('B08 a tombstone that a ValidationPipe refuses is parked, without the handler', async () => {
  const world = await testWorld();
  const topic = await world.topic();
  let calls = 0;

  class Order {
    @IsInt()
    amount!: number;
  }
  @Controller()
  class Handlers {
    @OnTopic(topic)
    @Idempotent({ consumer: 'test', id: position() })
    @UsePipes(new ValidationPipe({ whitelist: true }))
    handle(@Payload() _order: Order): void {
      calls += 1;
    }
  }
  await testService(world, { controllers: [Handlers] });
  await world.sendRaw(topic, { key: 'k', value: null });
  await world.untilCommitted(topic, 1);
  expect(calls).toBe(0);
  expect(await world.processed()).toEqual([]);
  expect(await parkedRows(world)).toMatchObject([{ error_code: 'VALIDATION_FAILED', value: null, attempts: 1 }]);
});

/** All that a handler can change of what it was given. */
function ruin(payload: Record<string, unknown>, context: KafkaContext): void {
  delete payload['items'];
  payload['x'] = 1;
  const { headers } = context.getMessage();
  if (headers) headers['foo'] = 'bar';
  currentDelivery()?.value?.fill(0);
  currentDelivery()?.key?.fill(0);
}

function copyOf(payload: unknown, context: KafkaContext): unknown {
  const { key, value, headers } = context.getMessage();
  const raw = { key: currentDelivery()?.key?.toString(), value: currentDelivery()?.value?.toString() };
  return structuredClone({ payload, key, value, headers, raw });
}

test('B13 the retry of an attempt that changed its input gets the input anew', async () => {
  const world = await testWorld();
  const topic = await world.topic();
  const inputs: unknown[] = [];
  await testService(world, {
    controllers: [
      eventHandler<Record<string, unknown>>(topic, (payload, { context }) => {
        inputs.push(copyOf(payload, context));
        ruin(payload, context);
        if (inputs.length === 1) throw new Error('once more');
      }),
    ],
  });
  await world.send(topic, { id: 'a', key: 'k', payload: { items: [{ n: 1 }] } });
  await world.untilCommitted(topic, 1);
  expect(inputs[0]).toMatchObject({ payload: { id: 'a', items: [{ n: 1 }] }, raw: { key: 'k' } });
  expect(inputs[1]).toEqual(inputs[0]);
});

test('B13 a second handler of the topic gets the record as it came, whatever the first did to its copy', async () => {
  const world = await testWorld();
  const topic = await world.topic();
  const inputs: unknown[] = [];
  const ruining = (consumer: string): Type =>
    eventHandler<Record<string, unknown>>(
      topic,
      (payload, { context }) => {
        inputs.push(copyOf(payload, context));
        ruin(payload, context);
      },
      { consumer },
    );
  await testService(world, { controllers: [ruining('one'), ruining('two')] });
  await world.send(topic, { id: 'a', key: 'k', payload: { items: [1, 2] } });
  await world.untilCommitted(topic, 1);
  expect(inputs).toHaveLength(2);
  expect(inputs[1]).toEqual(inputs[0]);
});

test('B14 binary keys stay apart and binary values stay bytes', async () => {
  const world = await testWorld();
  const topic = await world.topic();
  const seen: { payload: unknown; key: unknown }[] = [];
  await testService(world, {
    controllers: [
      eventHandler<unknown>(topic, (payload, { context }) => seen.push({ payload, key: context.getMessage().key }), {
        id: recordKey(),
      }),
    ],
  });
  const value = Buffer.from('000000000780ff', 'hex');
  const keys = [Buffer.from('fffe01', 'hex'), Buffer.from('fffd01', 'hex')];
  await world.sendRaw(topic, ...keys.map((key) => ({ key, value })));
  await world.untilCommitted(topic, 2);
  expect(seen).toEqual(keys.map((key) => ({ payload: value, key })));
  expect(await world.processed()).toEqual(['test/hex:fffd01', 'test/hex:fffe01']);
});

test.each([
  ['a JSON text cut short', '{"a":1'],
  ['an array cut short', '[1'],
  ['bytes that are no UTF-8', Buffer.from('22ff22', 'hex')],
])('B43 %s fails before the handler and is parked', async (_, value) => {
  const world = await testWorld();
  const topic = await world.topic();
  const seen: unknown[] = [];
  const service = await testService(world, {
    controllers: [eventHandler<unknown>(topic, (payload) => seen.push(payload))],
  });
  await world.sendRaw(topic, { value, headers: { 'event-id': 'a' } });
  await world.untilCommitted(topic, 1);
  expect(service.named('failed')).toMatchObject([{ error: { code: 'DECODE_FAILED' } }]);
  expect(seen).toEqual([]);
  expect(await world.processed()).toEqual([]);
  expect(await parkedRows(world)).toMatchObject([{ reason: 'decoding', value: Buffer.from(value) }]);
});

test('B43 JSON that is no object keeps its type, and keys and headers are never parsed', async () => {
  const world = await testWorld();
  const topic = await world.topic();
  const seen: unknown[] = [];
  await testService(world, {
    controllers: [
      eventHandler<unknown>(topic, (payload, { context }) => {
        const { key, headers } = context.getMessage();
        seen.push({ payload, key, header: headers?.['h'] });
      }),
    ],
  });
  const [key, header] = ['{"k":1}', '[1]'];
  const values = ['123', '"x"', 'true', '\ufeff{}'];
  await world.sendRaw(
    topic,
    ...values.map((value, at) => ({ key, value, headers: { 'event-id': `e${at}`, h: header } })),
  );
  await world.untilCommitted(topic, 4);
  expect(seen).toEqual([123, 'x', true, {}].map((payload) => ({ payload, key, header })));
});

test('B42 an event that carries reply headers is no request: nothing is sent there, and its failure keeps it in front', async () => {
  const world = await testWorld();
  const topic = await world.topic();
  const replies = await world.topic();
  let broken = true;

  @Controller()
  class Handlers {
    constructor(@Inject(DataSource) readonly dataSource: DataSource) {}

    @OnTopic(topic)
    @Idempotent({ consumer: 'test' })
    async handle(@Payload() { id }: TestEvent, @Ctx() _context: KafkaContext) {
      await writeEffect(this, id);
      if (broken) throw new Error('no');
      return { a: 'reply?' };
    }
  }
  const service = await testService(world, { controllers: [Handlers] });
  await world.send(topic, { id: 'a', headers: { kafka_correlationId: 'c', kafka_replyTopic: replies } });
  await until(() => service.named('failed').length >= 3, { what: 'three failures' });
  expect(await world.committed(topic)).toBe(0n);
  broken = false;
  await world.untilCommitted(topic, 1);
  expect(await world.effects()).toEqual(['a']);
  expect(await world.admin.fetchTopicOffsets(replies)).toMatchObject([{ high: '0' }]);
});
