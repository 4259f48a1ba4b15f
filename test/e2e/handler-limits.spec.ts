import { Controller } from '@nestjs/common';
import { Payload } from '@nestjs/microservices';
import { of, throwError } from 'rxjs';
import { expect, test } from 'vitest';
import { Idempotent, Signal } from 'nestjs-kafka-idempotency';
import { eventHandler, type TestEvent } from './kit/handlers.js';
import { testService, testWorld } from './kit/in-test.js';
import { parkedRows } from './kit/parked.js';
import { OnTopic } from './kit/service.js';

const TWO = { attempts: 2, delay: 10, factor: 1, jitter: 'none' } as const;

test('@Signal() aborts at the timeout, and a handler that honours it ends early with the attempt counted', async () => {
  const world = await testWorld();
  const topic = await world.topic();
  const reasons: unknown[] = [];
  @Controller()
  class Handlers {
    @OnTopic(topic)
    @Idempotent({ consumer: 'test', timeout: 200 })
    async handle(@Payload() { id }: TestEvent, @Signal() signal: AbortSignal) {
      if (id !== 'slow') return;
      await new Promise((resolve) => signal.addEventListener('abort', resolve));
      reasons.push((signal.reason as { code: string }).code);
      throw new Error('ended early');
    }
  }
  await testService(world, { options: { retry: TWO }, controllers: [Handlers] });
  await world.send(topic, { id: 'slow' }, { id: 'b' });
  await world.untilCommitted(topic, 2);
  expect(reasons).toEqual(['HANDLER_TIMEOUT', 'HANDLER_TIMEOUT']);
  expect(await parkedRows(world)).toMatchObject([{ event_id: 'slow', error_code: 'HANDLER_TIMEOUT', attempts: 2 }]);
});

test.each([
  ['a value', () => 'x', true],
  ['a Promise', async () => 'x', true],
  ['an Observable', () => of(1, 2), true],
  ['an error', () => throwError(() => new Error('no')), true],
  ['a duplicate', () => 'x', true],
  ['a timeout', () => new Promise(() => undefined), true],
  ['a timeout of a handler without @Idempotent', () => new Promise(() => undefined), false],
] as [string, () => unknown, boolean][])(
  'B72 the processing hooks begin and end once for each delivery: %s',
  async (what, work, isIdempotent) => {
    const world = await testWorld();
    const topic = await world.topic();
    const count = what.startsWith('a timeout') ? 5 : 100;
    @Controller()
    class Plain {
      @OnTopic(topic)
      handle(): unknown {
        return work();
      }
    }
    const service = await testService(world, {
      options: { retry: { ...TWO, attempts: 1 }, timeout: what.startsWith('a timeout') ? 50 : '30s' },
      controllers: [isIdempotent ? eventHandler(topic, work) : Plain],
    });
    let [starts, ends] = [0, 0];
    service.server.setOnProcessingStartHook((_transport, _context, done) => {
      starts += 1;
      void done();
    });
    service.server.setOnProcessingEndHook(() => (ends += 1));
    // Each twice, and not two duplicates in a row: those would be looked up without a delivery.
    const events = Array.from({ length: count }, (_, at) => ({ id: `e${what === 'a duplicate' ? at >> 1 : at}` }));
    await world.send(topic, ...events);
    await world.untilCommitted(topic, count);
    expect({ starts, ends }).toEqual({ starts: count, ends: count });
  },
);
