import {
  Catch,
  Controller,
  Inject,
  Injectable,
  Scope,
  UseFilters,
  type ExceptionFilter,
  type Type,
} from '@nestjs/common';
import { CONTEXT, Payload, RpcException, type RequestContext } from '@nestjs/microservices';
import type { Consumer } from 'kafkajs';
import { of, throwError, type Observable } from 'rxjs';
import { DataSource } from 'typeorm';
import { expect, test } from 'vitest';
import { Idempotent, IdempotencyHealth } from 'nestjs-kafka-idempotency';
import { until } from 'nestjs-kafka-idempotency/testing';
import { eventHandler, writeEffect, type TestEvent } from './kit/handlers.js';
import { testService, testWorld } from './kit/in-test.js';
import { OnTopic, type RunningService } from './kit/service.js';
import type { World } from './kit/world.js';

/** Fails at `a` until it is mended. */
interface Fault {
  broken: boolean;
}

async function expectInFront(world: World, topic: string, service: RunningService, offset = '0'): Promise<void> {
  await until(() => service.named('failed').length >= 3, { what: 'three failures' });
  expect(new Set(service.named('received').map((event) => event.offset))).toEqual(new Set([offset]));
  expect(await world.committed(topic)).toBe(BigInt(offset));
  expect(await world.effects()).toEqual([]);
  expect(await world.processed()).toEqual([]);
}

async function expectBothOnceMended(world: World, topic: string, fault: Fault): Promise<void> {
  fault.broken = false;
  await world.untilCommitted(topic, 2);
  expect(await world.effects()).toEqual(['a', 'b']);
}

const ways: Record<string, (write: () => Promise<void>) => unknown> = {
  'that throws at once': () => {
    throw new Error('no');
  },
  'whose promise rejects': async (write) => {
    await write();
    throw new Error('no');
  },
  'whose Observable fails': () => throwError(() => new Error('no')),
  'that throws an RpcException': async (write) => {
    await write();
    throw new RpcException('no');
  },
};

test.each(Object.keys(ways))('B01 the offset does not move behind a handler %s', async (way) => {
  const world = await testWorld();
  const topic = await world.topic();
  const fault: Fault = { broken: true };
  const service = await testService(world, {
    controllers: [
      eventHandler(topic, ({ id }, tools) =>
        id === 'a' && fault.broken ? ways[way]?.(() => writeEffect(tools, id)) : writeEffect(tools, id),
      ),
    ],
  });
  await world.send(topic, { id: 'a' }, { id: 'b' });
  await expectInFront(world, topic, service);
  await expectBothOnceMended(world, topic, fault);
});

test('B01 an exception filter that answers instead of the handler cannot hide the error: nothing is committed', async () => {
  const world = await testWorld();
  const topic = await world.topic();
  const fault: Fault = { broken: true };
  const swallowed: unknown[] = [];

  @Catch()
  class Swallow implements ExceptionFilter {
    catch(error: unknown): Observable<null> {
      swallowed.push(error);
      return of(null);
    }
  }
  @Controller()
  class Handlers {
    constructor(@Inject(DataSource) readonly dataSource: DataSource) {}

    @OnTopic(topic)
    @Idempotent({ consumer: 'test' })
    @UseFilters(Swallow)
    async handle(@Payload() { id }: TestEvent) {
      await writeEffect(this, id);
      if (id === 'a' && fault.broken) throw new Error('the original');
    }
  }
  const service = await testService(world, { controllers: [Handlers] });
  await world.send(topic, { id: 'a' }, { id: 'b' });
  await expectInFront(world, topic, service);
  expect(swallowed.length).toBeGreaterThanOrEqual(3);
  expect(service.named('failed')[0]?.error).toMatchObject({ message: 'the original' });
  await expectBothOnceMended(world, topic, fault);
});

test('B02 while a record fails no later one begins, and the order is kept', async () => {
  const world = await testWorld();
  const topic = await world.topic();
  const offsetsAtCall: (bigint | undefined)[] = [];
  let calls = 0;
  await testService(world, {
    options: { retry: { attempts: Infinity, delay: 300, factor: 1, jitter: 'none' } },
    controllers: [
      eventHandler(topic, async ({ id }, tools) => {
        offsetsAtCall.push(await world.committed(topic));
        if (id === 'a' && (calls += 1) <= 2) throw new Error('not yet');
        await writeEffect(tools, id);
      }),
    ],
  });
  await world.send(topic, { id: 'a' }, { id: 'b' });
  await world.untilCommitted(topic, 2);
  expect(calls).toBe(3);
  expect(offsetsAtCall.slice(0, 3)).toEqual([0n, 0n, 0n]);
  expect(await world.effects()).toEqual(['a', 'b']);
});

test('B03 failures of many records never reach the Kafka client: each has its own two attempts, and the member stays', async () => {
  const world = await testWorld();
  const topic = await world.topic();
  const failedOnce = new Set<string>();
  const service = await testService(world, {
    options: {
      kafka: {
        consumer: { groupId: world.group, sessionTimeout: 6000, heartbeatInterval: 500, retry: { retries: 5 } },
      },
    },
    controllers: [
      eventHandler(topic, async ({ id }, tools) => {
        await writeEffect(tools, id);
        if (failedOnce.has(id)) return;
        failedOnce.add(id);
        throw new Error(`once for ${id}`);
      }),
    ],
  });
  await until(() => service.named('assigned').length > 0, { what: 'the join' });
  const [consumer] = service.server.unwrap<[Consumer]>();
  const troubles: string[] = [];
  for (const event of [consumer.events.CRASH, consumer.events.GROUP_JOIN, consumer.events.REBALANCING] as const)
    consumer.on(event as typeof consumer.events.CRASH, () => troubles.push(event));
  const sent = Array.from({ length: 20 }, (_, at) => ({ id: `e${at}` }));
  await world.send(topic, ...sent);
  await world.untilCommitted(topic, 20);
  expect(await world.effects()).toEqual(sent.map(({ id }) => id));
  expect(service.named('received').map(({ offset, attempt }) => `${offset}/${attempt}`)).toEqual(
    sent.flatMap((_, at) => [`${at}/1`, `${at}/2`]),
  );
  expect(troubles).toEqual([]);
});

test('B04 a plain bug in a handler stops neither the consumer nor its readiness, and health says which record is retried', async () => {
  const world = await testWorld();
  const topic = await world.topic(2);
  const fault: Fault = { broken: true };
  const service = await testService(world, {
    controllers: [
      eventHandler(topic, async ({ id }, tools) => {
        if (id === 'a' && fault.broken) (undefined as unknown as { x: () => void }).x();
        await writeEffect(tools, id);
      }),
    ],
  });
  await world.send(topic, { id: 'a', partition: 0 });
  await until(() => service.named('failed').length >= 3, { what: 'three failures' });
  await world.send(topic, { id: 'b', partition: 1 });
  await world.untilCommitted(topic, 1, 1); // the other partition goes on
  const report = await service.app.get(IdempotencyHealth).check();
  expect(report).toMatchObject({ live: true, ready: true, reasons: [{ code: 'HANDLER_RETRYING' }] });
  expect(report.reasons[0]?.detail).toContain(`${topic}[0]@0`);
  expect(report.partitions.map(({ partition, state }) => `${partition} ${state}`).sort()).toEqual([
    '0 retrying',
    '1 running',
  ]);

  fault.broken = false;
  await world.untilCommitted(topic, 1, 0);
  expect((await service.app.get(IdempotencyHealth).check()).reasons).toEqual([]);
  expect((await world.effects()).sort()).toEqual(['a', 'b']);
});

test.each([
  ['nothing', undefined],
  ['an object that cannot be made a text', Object.create(null)],
])('B04 a handler that throws %s fails its attempt and nothing else', async (_, thrown: unknown) => {
  const world = await testWorld();
  const topic = await world.topic();
  const fault: Fault = { broken: true };
  const service = await testService(world, {
    controllers: [
      eventHandler(topic, async ({ id }, tools) => {
        await writeEffect(tools, id);
        if (fault.broken) throw thrown;
      }),
    ],
  });
  await world.send(topic, { id: 'a' }, { id: 'b' });
  await expectInFront(world, topic, service);
  await expectBothOnceMended(world, topic, fault);
});

test('B24 a request-scoped provider that fails in its constructor keeps the record in front', async () => {
  const world = await testWorld();
  const topic = await world.topic();
  const fault: Fault = { broken: true };

  @Injectable({ scope: Scope.REQUEST })
  class PerEvent {
    constructor(@Inject(CONTEXT) { data }: RequestContext<TestEvent>) {
      if (data?.id === 'a' && fault.broken) throw new Error('cannot be built');
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
  const service = await testService(world, { controllers: [Handlers as Type], providers: [PerEvent] });
  await world.send(topic, { id: 'a' }, { id: 'b' });
  await expectInFront(world, topic, service);
  await expectBothOnceMended(world, topic, fault);
});
