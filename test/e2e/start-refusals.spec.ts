import { Controller, type Type } from '@nestjs/common';
import { MessagePattern } from '@nestjs/microservices';
import { expect, test } from 'vitest';
import { Idempotent, IdempotencyModule, type ErrorCode } from 'nestjs-kafka-idempotency';
import { eventHandler } from './kit/handlers.js';
import { testService, testWorld } from './kit/in-test.js';
import { idempotencyOptions, OnTopic, type ServiceOptions } from './kit/service.js';
import type { World } from './kit/world.js';

const TOPIC = 'never.read';
const controllers = [eventHandler(TOPIC, () => undefined)];

function nameless(): Type {
  @Controller()
  class Handlers {
    @OnTopic(TOPIC)
    @Idempotent()
    handle(): void {}
  }
  return Handlers;
}

function onRequest(): Type {
  @Controller()
  class Handlers {
    @MessagePattern<string>(TOPIC)
    @Idempotent({ consumer: 'test' })
    handle(): void {}
  }
  return Handlers;
}

function withoutPattern(): Type {
  @Controller()
  class Handlers {
    @Idempotent({ consumer: 'test' })
    handle(): void {}
  }
  return Handlers;
}

/** `@Idempotent` below a decorator that puts a function of its own in the method's place. */
function replaced(): Type {
  const Wrapped: MethodDecorator = (_target, _key, descriptor) => {
    const { value } = descriptor as unknown as { value: (...args: unknown[]) => unknown };
    (descriptor as { value: unknown }).value = (...args: unknown[]) => value(...args);
  };
  @Controller()
  class Handlers {
    @OnTopic(TOPIC)
    @Wrapped
    @Idempotent({ consumer: 'test' })
    handle(): void {}
  }
  return Handlers;
}

const sessionSetting = (world: World, setting: string): NonNullable<ServiceOptions['typeOrm']> => ({
  extra: { options: `-c search_path=${world.schema} -c ${setting}` },
});

interface Refusal {
  readonly code: ErrorCode;
  /** What the message has to name. */
  readonly names: readonly string[];
  readonly service: (world: World) => ServiceOptions | Promise<ServiceOptions>;
}

const refusals: Record<string, Refusal> = {
  'a decorator that loses @Idempotent': {
    code: 'OPTIONS_INVALID',
    names: ['Handlers.handle', 'is lost'],
    service: () => ({ controllers: [replaced()] }),
  },
  'a consumer name used twice': {
    code: 'CONSUMER_NAME_TAKEN',
    names: ["'test'", 'Handlers.handle'],
    service: () => ({ controllers: [eventHandler(TOPIC, () => 1), eventHandler('other.topic', () => 2)] }),
  },
  "a handler without a consumer name where they are to be 'explicit'": {
    code: 'CONSUMER_NAME_MISSING',
    names: ['Handlers.handle', '@Idempotent({ consumer'],
    service: () => ({ controllers: [nameless()], options: { consumerNames: 'explicit' } }),
  },
  'B42 @Idempotent() on a request handler': {
    code: 'REQUEST_NOT_REPLAYABLE',
    names: ['Handlers.handle', '@EventPattern'],
    service: () => ({ controllers: [onRequest()] }),
  },
  '@Idempotent() on a method that handles no event': {
    code: 'OPTIONS_INVALID',
    names: ['Handlers.handle', '@EventPattern'],
    service: () => ({ controllers: [withoutPattern()] }),
  },
  'a second forRoot()': {
    code: 'ALREADY_CONFIGURED',
    names: ['2 times'],
    service: (world) => ({ controllers, imports: [IdempotencyModule.forRoot(idempotencyOptions(world))] }),
  },
  'B10 a pool too small for the transactions asked for': {
    code: 'POOL_TOO_SMALL',
    names: [
      'concurrency.transactions is 4',
      '4 connections',
      'Raise the pool to 6',
      'lower concurrency.transactions to 2',
    ],
    service: (world) => ({
      controllers,
      options: { concurrency: { transactions: 4 } },
      typeOrm: { extra: { max: 4, options: `-c search_path=${world.schema}` } },
    }),
  },
  'a DataSource that is not there': {
    code: 'DATA_SOURCE_NOT_FOUND',
    names: ["'elsewhere'"],
    service: () => ({ controllers, options: { dataSource: 'elsewhere' } }),
  },
  'F52 a database without our table': {
    code: 'SCHEMA_MISSING',
    names: ['processed_events', 'migration'],
    service: async (world) => {
      await world.db.query('DROP TABLE processed_events');
      return { controllers };
    },
  },
  'F52 a table whose claim could not be unique': {
    code: 'SCHEMA_MISMATCH',
    names: ['processed_events'],
    service: async (world) => {
      await world.db.query('ALTER TABLE processed_events DROP CONSTRAINT processed_events_pkey');
      return { controllers };
    },
  },
  'a session that commits without waiting for the disk': {
    code: 'DATABASE_UNSUITABLE',
    names: ['synchronous_commit'],
    service: (world) => ({ controllers, typeOrm: sessionSetting(world, 'synchronous_commit=off') }),
  },
  'a handler that may take longer than the server lets a transaction idle': {
    code: 'OPTIONS_INVALID',
    names: ['idle_in_transaction_session_timeout', '5000 ms', 'test (30000 ms)'],
    service: (world) => ({ controllers, typeOrm: sessionSetting(world, 'idle_in_transaction_session_timeout=5000') }),
  },
};

test.each(Object.keys(refusals))('%s is refused at start', async (what) => {
  const { code, names, service } = refusals[what] as Refusal;
  const world = await testWorld();
  const error = await testService(world, await service(world)).then(
    () => undefined,
    (refused: unknown) => refused,
  );
  expect(error).toMatchObject({ code });
  for (const name of names) expect((error as Error).message).toContain(name);
  expect((await world.admin.listGroups()).groups.map(({ groupId }) => groupId)).not.toContain(world.group);
});

test('a handler shorter than the idle limit of the server is accepted', async () => {
  const world = await testWorld();
  await testService(world, {
    controllers: [eventHandler(TOPIC, () => undefined, { timeout: '4s' })],
    typeOrm: sessionSetting(world, 'idle_in_transaction_session_timeout=5000'),
  });
});
