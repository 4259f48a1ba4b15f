import {
  Global,
  Inject,
  Module,
  type DynamicModule,
  type FactoryProvider,
  type ModuleMetadata,
  type OnApplicationBootstrap,
  type OnApplicationShutdown,
  type OnModuleDestroy,
  type OnModuleInit,
  type Provider,
} from '@nestjs/common';
import { DiscoveryModule, ModuleRef } from '@nestjs/core';
import { CheckedProducer } from './kafka/checked-producer.js';
import { ClusterReader } from './kafka/cluster-reader.js';
import { DeadLetterTopic } from './kafka/dead-letter-topic.js';
import { kafkaClient } from './kafka/kafka-client.js';
import { DeadLetterCopies } from './parking/dead-letter-copies.js';
import { GroupParking } from './parking/group-parking.js';
import { HeldKeys } from './parking/held-keys.js';
import { ParkingTables } from './parking/parking-tables.js';
import { IdempotentKafkaServer } from './consumer/idempotent-kafka.server.js';
import { findDataSource } from './data-source.js';
import { HandlerCatalogue } from './handler/handler-catalogue.js';
import { IdempotencyInterceptor } from './handler/idempotency.interceptor.js';
import type { IdempotencyOptions } from './idempotency.options.js';
import { Inbox } from './inbox/inbox.js';
import { IdempotencyEvents } from './observability/idempotency-events.js';
import { IdempotencyHealth } from './observability/idempotency-health.js';
import { checkOptions } from './options/check.js';
import { resolveOptions, type ResolvedOptions } from './options/resolve.js';
import type { EmitEvent } from './shared/events.js';
import {
  CONSUMER_PROGRESS,
  DEAD_LETTER_TOPIC,
  EMIT_EVENT,
  HANDLER_PROFILES,
  PARKING,
  REDELIVERY,
  RESOLVED_OPTIONS,
} from './shared/tokens.js';
import { StartupChecks } from './startup-checks.js';
import { TransactionScope } from './transaction/transaction-scope.js';

/** How `forRootAsync` gets its options: from a factory, as in every Nest module. */
export interface IdempotencyAsyncOptions extends Pick<ModuleMetadata, 'imports'> {
  readonly inject?: FactoryProvider['inject'];
  readonly useFactory: (...injected: never[]) => IdempotencyOptions | Promise<IdempotencyOptions>;
}

/**
 * Exactly-once effects for the `@Idempotent()` handlers of this application: one consumer group, one DataSource. Global.
 *
 * Start: checks everything before the first record (`onModuleInit`), consumes after every `onModuleInit` has run. End: draining begins in
 * `onModuleDestroy`; what handlers need has to live until `onApplicationShutdown`, as TypeORM's pool does.
 */
@Global()
@Module({})
export class IdempotencyModule implements OnModuleInit, OnApplicationBootstrap, OnModuleDestroy, OnApplicationShutdown {
  #transactions = 0;

  constructor(
    @Inject(StartupChecks) private readonly checks: StartupChecks,
    @Inject(IdempotentKafkaServer) private readonly server: IdempotentKafkaServer,
    @Inject(TransactionScope) private readonly scope: TransactionScope,
  ) {}

  /** Throws OPTIONS_INVALID with everything that is wrong, each with its path and remedy. */
  static forRoot(options: IdempotencyOptions): DynamicModule {
    return dynamicModule([{ provide: RESOLVED_OPTIONS, useValue: checkedOptions(options) }], []);
  }

  /** As {@link IdempotencyModule.forRoot}; the options are checked when the factory resolves. */
  static forRootAsync({ imports, inject, useFactory }: IdempotencyAsyncOptions): DynamicModule {
    const options: Provider = {
      provide: RESOLVED_OPTIONS,
      inject: inject ?? [],
      useFactory: async (...injected: never[]): Promise<ResolvedOptions> =>
        checkedOptions(await useFactory(...injected)),
    };
    return dynamicModule([options], imports ?? []);
  }

  async onModuleInit(): Promise<void> {
    this.#transactions = await this.checks.run();
    this.scope.install();
  }

  onApplicationBootstrap(): void {
    this.checks.transport(this.server.handlerCount);
    this.server.begin({ transactions: this.#transactions, barrier: () => this.scope.barrier() });
  }

  async onModuleDestroy(): Promise<void> {
    await this.server.stop();
  }

  onApplicationShutdown(): void {
    this.scope.uninstall();
  }
}

function checkedOptions(options: IdempotencyOptions): ResolvedOptions {
  checkOptions(options);
  return resolveOptions(options);
}

/** The parking room, and the dead-letter topic beside it. */
const parkingProviders: Provider[] = [
  {
    provide: ParkingTables,
    inject: [TransactionScope, RESOLVED_OPTIONS, ModuleRef],
    useFactory: (scope: TransactionScope, { dataSource }: ResolvedOptions, modules: ModuleRef) =>
      new ParkingTables((sql, parameters) =>
        scope.escape(() => findDataSource(modules, dataSource).query<unknown[]>(sql, parameters)),
      ),
  },
  {
    provide: DEAD_LETTER_TOPIC,
    inject: [RESOLVED_OPTIONS],
    useFactory: ({ kafka, deadLetters }: ResolvedOptions) => {
      if (deadLetters === undefined) return undefined;
      const newKafka = () => kafkaClient(kafka.client);
      return new DeadLetterTopic(
        deadLetters.topic,
        new CheckedProducer(newKafka, kafka.producer),
        new ClusterReader(newKafka()),
      );
    },
  },
  {
    provide: PARKING,
    inject: [ParkingTables, DEAD_LETTER_TOPIC, RESOLVED_OPTIONS],
    useFactory: (tables: ParkingTables, topic: DeadLetterTopic | undefined, options: ResolvedOptions) =>
      new GroupParking({
        groupId: options.kafka.groupId,
        tables,
        keys: new HeldKeys(tables, options.kafka.groupId, () => undefined),
        copies: new DeadLetterCopies(topic, { stack: options.deadLetters?.stack ?? false }),
      }),
  },
];

function dynamicModule(options: Provider[], imports: NonNullable<ModuleMetadata['imports']>): DynamicModule {
  return {
    module: IdempotencyModule,
    imports: [DiscoveryModule, ...imports],
    providers: [
      ...options,
      IdempotencyEvents,
      {
        provide: EMIT_EVENT,
        inject: [IdempotencyEvents],
        useFactory: (events: IdempotencyEvents): EmitEvent => events.emit,
      },
      {
        provide: TransactionScope,
        inject: [RESOLVED_OPTIONS, EMIT_EVENT, ModuleRef],
        useFactory: ({ preparedStatements, dataSource }: ResolvedOptions, emit: EmitEvent, modules: ModuleRef) =>
          new TransactionScope(() => findDataSource(modules, dataSource), { preparedStatements, emit }),
      },
      {
        provide: Inbox,
        inject: [RESOLVED_OPTIONS],
        useFactory: ({ claimTimeoutMs }: ResolvedOptions) => new Inbox(claimTimeoutMs),
      },
      ...parkingProviders,
      StartupChecks,
      HandlerCatalogue,
      { provide: HANDLER_PROFILES, useExisting: HandlerCatalogue },
      IdempotencyInterceptor,
      IdempotentKafkaServer,
      { provide: CONSUMER_PROGRESS, useExisting: IdempotentKafkaServer },
      { provide: REDELIVERY, useExisting: IdempotentKafkaServer },
      IdempotencyHealth,
    ],
    exports: [
      EMIT_EVENT,
      HandlerCatalogue,
      IdempotencyEvents,
      IdempotencyHealth,
      IdempotentKafkaServer,
      Inbox,
      TransactionScope,
    ],
  };
}
