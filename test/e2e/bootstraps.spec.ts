import {
  Controller,
  Inject,
  type INestApplication,
  type INestMicroservice,
  type Provider,
  type Type,
} from '@nestjs/common';
import { APP_INTERCEPTOR, NestFactory } from '@nestjs/core';
import { ClientProxyFactory, Payload, Transport, type AsyncMicroserviceOptions } from '@nestjs/microservices';
import { DataSource } from 'typeorm';
import { expect, onTestFinished, test } from 'vitest';
import { Idempotent, IdempotentKafkaServer } from 'nestjs-kafka-idempotency';
import { IdempotencyInterceptor } from '#src/handler/idempotency.interceptor.js';
import { freePort } from '#src/testing/free-port.js';
import { until } from 'nestjs-kafka-idempotency/testing';
import { eventHandler, writeEffect, type TestEvent } from './kit/handlers.js';
import { testWorld } from './kit/in-test.js';
import { KeptLog } from './kit/log.js';
import { observed, OnTopic, serviceModule, testLogger } from './kit/service.js';

type Application = INestApplication | INestMicroservice;
type Bootstrap = (module: object, prepare: (app: Application) => void) => Promise<Application>;

const standalone: Bootstrap = async (module, prepare) => {
  const app = await NestFactory.createMicroservice<AsyncMicroserviceOptions>(
    module as Type,
    {
      inject: [IdempotentKafkaServer],
      useFactory: (strategy: IdempotentKafkaServer) => ({ strategy }),
      logger: testLogger(),
      abortOnError: false,
    } as AsyncMicroserviceOptions & object,
  );
  prepare(app);
  return app;
};

const hybrid =
  (inheritAppConfig: boolean): Bootstrap =>
  async (module, prepare) => {
    const app = await NestFactory.create(module as Type, { logger: testLogger(), abortOnError: false });
    prepare(app);
    app.connectMicroservice({ strategy: app.get(IdempotentKafkaServer) }, { inheritAppConfig });
    return app;
  };

const bootstraps: Record<string, Bootstrap> = {
  standalone,
  hybrid: hybrid(false),
  'hybrid with inheritAppConfig': hybrid(true),
};

interface Binding {
  readonly twice?: boolean;
  readonly providers?: Provider[];
  readonly isGlobal?: boolean;
}
const appInterceptor: Provider = { provide: APP_INTERCEPTOR, useClass: IdempotencyInterceptor };
const bindings: Record<string, Binding> = {
  'the decorator alone': {},
  'the decorator twice': { twice: true },
  'APP_INTERCEPTOR too': { providers: [appInterceptor] },
  'useGlobalInterceptors too': { isGlobal: true },
  'all of them': { twice: true, providers: [appInterceptor], isGlobal: true },
};

const matrix = Object.keys(bootstraps).flatMap((bootstrap) =>
  Object.keys(bindings).map((binding) => [bootstrap, binding] as const),
);

test.each(matrix)(
  'B12 in a %s application with %s an event is handled in one transaction, once',
  async (how, bound) => {
    const world = await testWorld();
    const topic = await world.topic();
    const { twice = false, providers = [], isGlobal = false } = bindings[bound] ?? {};
    const again = twice ? Idempotent({ consumer: 'test' }) : () => undefined;

    @Controller()
    class Handlers {
      constructor(@Inject(DataSource) readonly dataSource: DataSource) {}

      @again
      @OnTopic(topic)
      @Idempotent({ consumer: 'test' })
      async handle(@Payload() { id }: TestEvent) {
        await writeEffect(this, id);
      }
    }
    const app = await bootstraps[how]?.(serviceModule(world, { controllers: [Handlers], providers }), (made) => {
      if (isGlobal) made.useGlobalInterceptors(made.get(IdempotencyInterceptor));
    });
    if (app === undefined) throw new Error(`no bootstrap ${how}`);
    const service = observed(app);
    onTestFinished(() => service.close());
    const transactions = countTransactions(app.get(DataSource));
    await ('startAllMicroservices' in app ? app.startAllMicroservices().then(() => app.init()) : app.listen());

    await world.send(topic, { id: 'a' });
    await world.untilCommitted(topic, 1);
    expect(await world.effects()).toEqual(['a']);
    expect(await world.processed()).toEqual(['test/a']);
    expect(transactions.count).toBe(1);
    expect(service.events.map(({ name }) => name).filter((name) => name === 'claimed' || name === 'duplicate')).toEqual(
      ['claimed'],
    );
  },
);

function countTransactions(dataSource: DataSource): { count: number } {
  const counted = { count: 0 };
  dataSource.subscribers.push({ afterTransactionStart: () => void (counted.count += 1) });
  return counted;
}

test('B12 an idempotent handler on another transport is told at start, and refuses to run there', async () => {
  const world = await testWorld();
  const log = new KeptLog();
  const port = await freePort();
  let calls = 0;
  const module = serviceModule(world, { controllers: [eventHandler('some.topic', () => (calls += 1))] });
  const app = await NestFactory.createMicroservice(module as unknown as Type, {
    transport: Transport.TCP,
    options: { port },
    logger: log,
    abortOnError: false,
  });
  onTestFinished(() => app.close());
  await app.listen();
  const told = log.with('TRANSPORT_MISSING');
  expect(told).toMatchObject([{ level: 'error' }]);
  expect(told[0]?.text).toContain('test');

  const client = ClientProxyFactory.create({ transport: Transport.TCP, options: { port } });
  onTestFinished(() => client.close());
  client.emit('some.topic', { id: 'a' }).subscribe();
  await until(() => log.with('TRANSPORT_MISSING').length > 1, { what: 'the refusal' });
  expect(calls).toBe(0);
  expect(await world.processed()).toEqual([]);
});
