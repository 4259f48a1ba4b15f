import {
  Module,
  type DynamicModule,
  type INestApplication,
  type INestMicroservice,
  type LoggerService,
  type ModuleMetadata,
  type Provider,
  type Type,
} from '@nestjs/common';
import { NestFactory } from '@nestjs/core';
import { EventPattern, type AsyncMicroserviceOptions } from '@nestjs/microservices';
import { TypeOrmModule, type TypeOrmModuleOptions } from '@nestjs/typeorm';
import type { EntitySchema } from 'typeorm';
import {
  IdempotencyEvents,
  IdempotencyModule,
  IdempotentKafkaServer,
  type IdempotencyEvent,
  type IdempotencyOptions,
} from 'nestjs-kafka-idempotency';
import type { World } from './world.js';

/** Where a service works: all it needs to know of a test's world, also in a process of its own. */
export type Place = Pick<World, 'schema' | 'group' | 'brokers' | 'databaseUrl'>;

export interface ServiceOptions {
  readonly controllers: Type[];
  readonly providers?: Provider[];
  readonly imports?: NonNullable<ModuleMetadata['imports']>;
  readonly entities?: (Type | EntitySchema)[];
  /** Merged over the test's defaults, kafka group by group. */
  readonly options?: Partial<Omit<IdempotencyOptions, 'kafka'>> & { kafka?: Partial<IdempotencyOptions['kafka']> };
  readonly typeOrm?: Partial<TypeOrmModuleOptions> & { extra?: Record<string, unknown> };
  readonly databaseUrl?: string;
  /** Default quiet, unless TEST_LOG is set. */
  readonly logger?: LoggerService;
}

/** Retries soon and for ever, sessions short: what the tests set unless they say otherwise. */
export function idempotencyOptions(world: Place, given: ServiceOptions['options'] = {}): IdempotencyOptions {
  const { kafka, ...rest } = given;
  return {
    retry: { attempts: Infinity, delay: 50, factor: 1, jitter: 'none' },
    commitInterval: 100,
    shutdown: { deadline: '10s' },
    ...rest,
    kafka: {
      client: { clientId: world.group, brokers: world.brokers, ...kafka?.client },
      ...kafka,
      consumer: { groupId: world.group, sessionTimeout: 6000, heartbeatInterval: 500, ...kafka?.consumer },
    },
  };
}

export function serviceModule(world: Place, service: ServiceOptions): DynamicModule {
  @Module({})
  class ServiceModule {}
  return {
    module: ServiceModule,
    imports: [
      TypeOrmModule.forRoot({
        type: 'postgres',
        url: service.databaseUrl ?? world.databaseUrl,
        schema: world.schema,
        entities: service.entities ?? [],
        retryAttempts: 0,
        ...service.typeOrm,
        extra: { options: `-c search_path=${world.schema}`, ...service.typeOrm?.extra },
      } as TypeOrmModuleOptions),
      IdempotencyModule.forRoot(idempotencyOptions(world, service.options)),
      ...(service.entities === undefined ? [] : [TypeOrmModule.forFeature(service.entities as Type[])]),
      ...(service.imports ?? []),
    ],
    controllers: service.controllers,
    providers: service.providers ?? [],
  };
}

/** The events of that name; several share one member of the union. */
type Named<N extends IdempotencyEvent['name']> = IdempotencyEvent extends infer E
  ? E extends { name: infer Names }
    ? N extends Names
      ? E
      : never
    : never
  : never;

export interface RunningService {
  readonly app: INestMicroservice | INestApplication;
  readonly server: IdempotentKafkaServer;
  readonly events: IdempotencyEvent[];
  named<N extends IdempotencyEvent['name']>(name: N): Named<N>[];
  /** The failed attempts, in words. */
  readonly failures: string[];
  close(): Promise<void>;
}

/** A pure microservice on our transport, consuming. */
export async function startService(world: Place, service: ServiceOptions): Promise<RunningService> {
  const app = await NestFactory.createMicroservice<AsyncMicroserviceOptions>(serviceModule(world, service), {
    inject: [IdempotentKafkaServer],
    useFactory: (strategy: IdempotentKafkaServer) => ({ strategy }),
    logger: service.logger ?? testLogger(),
    abortOnError: false,
  } as AsyncMicroserviceOptions & object);
  const running = observed(app);
  try {
    await app.listen();
  } catch (error) {
    await running.close();
    throw error;
  }
  return running;
}

export function observed(app: INestMicroservice | INestApplication): RunningService {
  const events: IdempotencyEvent[] = [];
  app.get(IdempotencyEvents).events$.subscribe((event) => events.push(event));
  let closed: Promise<void> | undefined;
  return {
    app,
    server: app.get(IdempotentKafkaServer),
    events,
    named: (name) => events.filter((event) => event.name === name) as never,
    get failures() {
      return events.flatMap((event) =>
        event.name === 'failed' ? [`${event.offset}, attempt ${event.attempt}: ${String(event.error)}`] : [],
      );
    },
    close: () => (closed ??= app.close()),
  };
}

/** Quiet, unless TEST_LOG is set. */
export function testLogger(): false | ('log' | 'warn' | 'error' | 'debug')[] {
  return process.env['TEST_LOG'] ? ['log', 'warn', 'error', 'debug'] : false;
}

/** `@EventPattern` of a topic whose name is only known at run time; Nest's overload for names wants a literal type. */
export function OnTopic(pattern: string | RegExp): MethodDecorator {
  return EventPattern<string | RegExp>(pattern);
}
