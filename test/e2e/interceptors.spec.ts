import { Controller, type CallHandler, type ExecutionContext, type NestInterceptor } from '@nestjs/common';
import { APP_INTERCEPTOR } from '@nestjs/core';
import { MessagePattern } from '@nestjs/microservices';
import { concatWith, NEVER, retry, timeout, type Observable } from 'rxjs';
import { expect, test } from 'vitest';
import { eventHandler, Gate, writeEffect } from './kit/handlers.js';
import { testService, testWorld } from './kit/in-test.js';

// Interceptors of the application that stand in front of ours.

function inFront(change: (handled: Observable<unknown>) => Observable<unknown>) {
  class InFront implements NestInterceptor {
    intercept(_context: ExecutionContext, next: CallHandler): Observable<unknown> {
      return change(next.handle());
    }
  }
  return { provide: APP_INTERCEPTOR, useClass: InFront };
}

test('an interceptor that subscribes again after a failure does not run the handler outside its transaction', async () => {
  const world = await testWorld();
  const topic = await world.topic();
  let calls = 0;
  const handler = eventHandler(topic, async ({ id }, tools) => {
    calls += 1;
    await writeEffect(tools, id);
    if (calls === 1) throw new Error('once');
  });
  await testService(world, { controllers: [handler], providers: [inFront((handled) => handled.pipe(retry(2)))] });
  await world.send(topic, { id: 'a' });
  await world.untilCommitted(topic, 1);
  expect(await world.effects()).toEqual(['a']);
  expect(await world.processed()).toEqual(['test/a']);
  expect(calls).toBe(2);
});

test('an interceptor that gives up waiting ends the transaction of the handler it left behind', async () => {
  const world = await testWorld();
  const topic = await world.topic();
  let calls = 0;
  const handler = eventHandler(topic, async ({ id }, tools) => {
    calls += 1;
    await writeEffect(tools, id);
    if (calls === 1) await new Gate().passed;
  });
  const service = await testService(world, {
    controllers: [handler],
    providers: [inFront((handled) => handled.pipe(timeout(200)))],
  });
  await world.send(topic, { id: 'a' });
  await world.untilCommitted(topic, 1);
  expect(await world.effects()).toEqual(['a']);
  expect(calls).toBe(2);
  expect(service.named('busy')).toEqual([]);
});

test('an interceptor that never ends does not turn a committed event into a failure', async () => {
  const world = await testWorld();
  const topic = await world.topic();
  const service = await testService(world, {
    controllers: [eventHandler(topic, ({ id }, tools) => writeEffect(tools, id))],
    providers: [inFront((handled) => handled.pipe(concatWith(NEVER)))],
    options: { timeout: 300 },
  });
  await world.send(topic, { id: 'a' });
  await world.untilCommitted(topic, 1);
  expect(service.named('processed')).toHaveLength(1);
  expect(service.named('failed')).toEqual([]);
});

test('a request that never ends gets its error reply at the timeout and is settled', async () => {
  const world = await testWorld();
  const [topic, replyTopic] = [await world.topic(), await world.topic(1, 'reply')];
  let calls = 0;
  @Controller()
  class Handlers {
    @MessagePattern<string>(topic)
    async handle() {
      calls += 1;
      if (calls === 1) await new Gate().passed;
      return 'done';
    }
  }
  await testService(world, { controllers: [Handlers], options: { timeout: 300 } });
  const headers = { kafka_correlationId: '1', kafka_replyTopic: replyTopic };
  await world.sendRaw(topic, { value: '{}', headers }, { value: '{}', headers });
  await world.untilCommitted(topic, 2);
  expect(calls).toBe(2);
  expect((await world.admin.fetchTopicOffsets(replyTopic))[0]?.high).toBe('2');
});

test('B04 whatever a handler throws, its record is tried again and the other partitions go on', async () => {
  const world = await testWorld();
  const topic = await world.topic(2);
  let calls = 0;
  const hostile = Object.defineProperty(new Error('odd'), 'cause', {
    get() {
      throw new Error('not even that');
    },
  });
  const handler = eventHandler(topic, async ({ id }, tools) => {
    if (id === 'a' && (calls += 1) === 1) throw hostile;
    await writeEffect(tools, id);
  });
  await testService(world, { controllers: [handler] });
  await world.send(topic, { id: 'a', partition: 0 }, { id: 'b', partition: 1 });
  await world.untilCommitted(topic, 1, 0);
  await world.untilCommitted(topic, 1, 1);
  expect((await world.effects()).sort()).toEqual(['a', 'b']);
});
