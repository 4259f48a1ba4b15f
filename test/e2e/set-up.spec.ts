import { Controller, Inject, Module, type Type } from '@nestjs/common';
import { NestFactory } from '@nestjs/core';
import { Payload, type AsyncMicroserviceOptions } from '@nestjs/microservices';
import { getDataSourceToken, TypeOrmModule, type TypeOrmModuleOptions } from '@nestjs/typeorm';
import { DataSource } from 'typeorm';
import { expect, onTestFinished, test } from 'vitest';
import { Idempotent, IdempotencyModule, IdempotentKafkaServer } from 'nestjs-kafka-idempotency';
import { until } from 'nestjs-kafka-idempotency/testing';
import { eventHandler, writeEffect, type TestEvent } from './kit/handlers.js';
import { testService, testWorld } from './kit/in-test.js';
import { KeptLog } from './kit/log.js';
import { idempotencyOptions, observed, OnTopic, testLogger, type RunningService } from './kit/service.js';
import type { World } from './kit/world.js';

function dataSourceModule(world: World, name?: string) {
  return TypeOrmModule.forRoot({
    type: 'postgres',
    url: world.databaseUrl,
    schema: world.schema,
    extra: { options: `-c search_path=${world.schema}` },
    retryAttempts: 0,
    ...(name === undefined ? {} : { name }),
  } as TypeOrmModuleOptions);
}

async function start(module: Type): Promise<RunningService> {
  const app = await NestFactory.createMicroservice<AsyncMicroserviceOptions>(module, {
    inject: [IdempotentKafkaServer],
    useFactory: (strategy: IdempotentKafkaServer) => ({ strategy }),
    logger: testLogger(),
    abortOnError: false,
  } as AsyncMicroserviceOptions & object);
  const service = observed(app);
  onTestFinished(() => service.close());
  await app.listen();
  return service;
}

const SETTINGS = Symbol('settings');

function asyncModule(world: World, controllers: Type[], change: object = {}): Type {
  @Module({
    providers: [{ provide: SETTINGS, useValue: { ...idempotencyOptions(world), ...change } }],
    exports: [SETTINGS],
  })
  class SettingsModule {}
  @Module({
    imports: [
      dataSourceModule(world),
      IdempotencyModule.forRootAsync({
        imports: [SettingsModule],
        inject: [SETTINGS],
        useFactory: async (settings: never) => settings,
      }),
    ],
    controllers,
  })
  class ServiceModule {}
  return ServiceModule;
}

test('forRootAsync gets its options from a factory with injected providers', async () => {
  const world = await testWorld();
  const topic = await world.topic();
  await start(asyncModule(world, [eventHandler(topic, ({ id }, tools) => writeEffect(tools, id))]));
  await world.send(topic, { id: 'a' });
  await world.untilCommitted(topic, 1);
  expect(await world.effects()).toEqual(['a']);
  expect(await world.processed()).toEqual(['test/a']);
});

test('forRootAsync refuses wrong options when the factory resolves, each with its path', async () => {
  const world = await testWorld();
  const refused = start(asyncModule(world, [], { timeout: -1, surprise: true }));
  await expect(refused).rejects.toMatchObject({ code: 'OPTIONS_INVALID' });
  await expect(refused).rejects.toThrow(/timeout[^]*surprise|surprise[^]*timeout/);
});

/** Its handler writes `covered` through the DataSource of that name and `other` through the default one, then fails the first time. */
function twoDataSources(world: World, topic: string): Type {
  let calls = 0;

  @Controller()
  class Handlers {
    constructor(
      @Inject(getDataSourceToken('orders')) private readonly covered: DataSource,
      @Inject(DataSource) private readonly other: DataSource,
    ) {}

    @OnTopic(topic)
    @Idempotent({ consumer: 'test' })
    async handle(@Payload() { id }: TestEvent) {
      await writeEffect({ dataSource: this.covered }, id, 'covered');
      await writeEffect({ dataSource: this.other }, id, 'other');
      if ((calls += 1) === 1) throw new Error('after both');
    }
  }
  @Module({
    imports: [
      dataSourceModule(world),
      dataSourceModule(world, 'orders'),
      IdempotencyModule.forRoot({ ...idempotencyOptions(world), dataSource: 'orders' }),
    ],
    controllers: [Handlers],
  })
  class ServiceModule {}
  return ServiceModule;
}

test('B44 of two DataSources the named one is covered; the other one keeps what a failed attempt wrote, and nothing is lost', async () => {
  const world = await testWorld();
  const topic = await world.topic();
  await start(twoDataSources(world, topic));
  await world.send(topic, { id: 'a' });
  await world.untilCommitted(topic, 1);
  expect(await world.effects('covered')).toEqual(['a']);
  expect(await world.effects('other')).toEqual(['a', 'a']);
});

test('B44 with two DataSources one note at start names the covered one', async () => {
  const world = await testWorld();
  const log = new KeptLog();
  await testService(world, {
    logger: log,
    imports: [dataSourceModule(world, 'second')],
    controllers: [eventHandler('never.read', () => undefined)],
  });
  expect(log.with('is covered')).toMatchObject([
    { level: 'log', text: expect.stringContaining("DataSource 'default'") as string },
  ]);
});

test('two applications of one process may share one frozen options object', async () => {
  const world = await testWorld();
  const topic = await world.topic(2);
  const options = deepFrozen(idempotencyOptions(world));
  const application = (name: string): Type => {
    @Module({
      imports: [dataSourceModule(world), IdempotencyModule.forRoot(options)],
      controllers: [eventHandler(topic, ({ id }, tools) => writeEffect(tools, id, name))],
    })
    class ServiceModule {}
    return ServiceModule;
  };
  const services = [await start(application('one')), await start(application('two'))];
  await until(() => services.every((service) => service.named('assigned').at(-1)?.partitions.length === 1), {
    what: 'a partition for each',
  });
  await world.send(topic, { id: 'a', partition: 0 }, { id: 'b', partition: 1 });
  await world.untilCommitted(topic, 1, 0);
  await world.untilCommitted(topic, 1, 1);
  expect((await world.effects()).sort()).toEqual(['a', 'b']);
  expect(await world.effects('one')).toHaveLength(1);
  expect(await world.effects('two')).toHaveLength(1);
});

function deepFrozen<T extends object>(value: T): T {
  for (const part of Object.values(value)) if (typeof part === 'object' && part !== null) deepFrozen(part as object);
  return Object.freeze(value);
}
