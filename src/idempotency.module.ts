import {
  Global,
  Inject,
  Logger,
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
import { kafkaClients, type NewKafka } from './kafka/kafka-client.js';
import { EventPublisher } from './outbox/event-publisher.js';
import { Outbox } from './outbox/outbox.js';
import { OutboxRoom } from './outbox/outbox-room.js';
import { ParkedEvents } from './parking/parked-events.js';
import { ParkingRoom } from './parking/parking-room.js';
import { IdempotentKafkaServer } from './consumer/idempotent-kafka.server.js';
import { findDataSource } from './data-source.js';
import { whileDatabaseReturns } from './database-patience.js';
import { GroupTransactions } from './handler/group-transactions.js';
import { HandlerCatalogue } from './handler/handler-catalogue.js';
import { IdempotencyInterceptor } from './handler/idempotency.interceptor.js';
import type { IdempotencyOptions } from './idempotency.options.js';
import { Inbox } from './inbox/inbox.js';
import { IdempotencyEvents } from './observability/idempotency-events.js';
import { IdempotencyHealth } from './observability/idempotency-health.js';
import { checkOptions } from './options/check.js';
import { resolveOptions, type ResolvedOptions } from './options/resolve.js';
import type { EmitEvent } from './shared/events.js';
import type { Redelivery } from './shared/parking.js';
import { within } from './shared/within.js';
import {
  CONSUMER_PROGRESS,
  EMIT_EVENT,
  HANDLER_PROFILES,
  NEW_KAFKA,
  PARKING,
  RESOLVED_OPTIONS,
  SHARED_TRANSACTIONS,
} from './shared/tokens.js';
import { StartupChecks } from './startup-checks.js';
import { TransactionScope } from './transaction/transaction-scope.js';

/** For the writes of its last redeliveries. */
const PARKING_END_MS = 5000;
/** For what is on its way to Kafka. */
const OUTBOX_END_MS = 5000;

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
  /** Outside of any transaction: a replay may be asked for inside a handler. */
  readonly #redelivery: Redelivery;

  constructor(
    @Inject(StartupChecks) private readonly checks: StartupChecks,
    @Inject(IdempotentKafkaServer) private readonly server: IdempotentKafkaServer,
    @Inject(TransactionScope) private readonly scope: TransactionScope,
    @Inject(ParkingRoom) private readonly parking: ParkingRoom,
    @Inject(OutboxRoom) private readonly outbox: OutboxRoom,
    @Inject(DeadLetterTopic) private readonly deadLetters: DeadLetterTopic | undefined,
    @Inject(Inbox) private readonly inbox: Inbox,
    @Inject(HandlerCatalogue) private readonly handlers: HandlerCatalogue,
  ) {
    this.#redelivery = {
      get consumers() {
        return server.consumers;
      },
      redeliver: (parked) => scope.escape(() => server.redeliver(parked)),
    };
  }

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
    await whileDatabaseReturns(() =>
      this.scope.watchServer({
        restarted: () => this.server.databaseRestarted(),
        unreplicated: (detail) => this.server.commitUnreplicated(detail),
      }),
    );
  }

  onApplicationBootstrap(): void {
    this.checks.transport(this.server.handlerCount);
    const consumers = this.handlers.idempotent.map(({ consumer }) => consumer);
    this.server.begin({
      transactions: this.#transactions,
      barrier: () => this.scope.barrier(),
      handledBefore: (topics) => this.inbox.handledBefore(consumers, topics),
      handled: (consumer, eventIds) => this.inbox.handled(consumer, eventIds),
    });
    this.parking.start(this.#redelivery);
    this.outbox.start();
  }

  async onModuleDestroy(): Promise<void> {
    const parking = this.parking.stop(); // what it delivers ends with the consumer
    await this.server.stop();
    await within(parking, PARKING_END_MS);
    await within(this.outbox.stop(), OUTBOX_END_MS);
    await this.deadLetters?.close();
  }

  onApplicationShutdown(): void {
    this.scope.uninstall();
  }
}

function checkedOptions(options: IdempotencyOptions): ResolvedOptions {
  checkOptions(options);
  return resolveOptions(options);
}

/** Our own statements: on a connection of the pool, whatever transaction the caller is in. */
function queryOutside(scope: TransactionScope, modules: ModuleRef, dataSource: string) {
  return (sql: string, values: readonly unknown[]): Promise<unknown[]> =>
    scope.escape(() => findDataSource(modules, dataSource).query<unknown[]>(sql, [...values]));
}

/** The parking room, and the dead-letter topic beside it. */
const parkingProviders: Provider[] = [
  {
    provide: DeadLetterTopic,
    inject: [RESOLVED_OPTIONS, NEW_KAFKA],
    useFactory: ({ kafka, deadLetters }: ResolvedOptions, newKafka: NewKafka) => {
      if (deadLetters === undefined) return undefined;
      const producer = new CheckedProducer(newKafka, kafka.producer);
      return new DeadLetterTopic(deadLetters.topic, producer, new ClusterReader(newKafka));
    },
  },
  {
    provide: ParkingRoom,
    inject: [RESOLVED_OPTIONS, TransactionScope, DeadLetterTopic, EMIT_EVENT, ModuleRef],
    useFactory: (
      { kafka, dataSource, deadLetters, parking }: ResolvedOptions,
      scope: TransactionScope,
      publisher: DeadLetterTopic | undefined,
      emit: EmitEvent,
      modules: ModuleRef,
    ) => {
      const logger = new Logger('ParkedEvents');
      return new ParkingRoom({
        ...parking,
        groupId: kafka.groupId,
        query: queryOutside(scope, modules, dataSource),
        emit,
        log: (message) => logger.warn(message),
        deadLetters: publisher && { publisher, stack: deadLetters?.stack ?? false },
      });
    },
  },
  { provide: PARKING, inject: [ParkingRoom], useFactory: ({ parking }: ParkingRoom) => parking },
  { provide: ParkedEvents, inject: [ParkingRoom], useFactory: ({ events }: ParkingRoom) => events },
];

/** What events go out by. */
const outboxProviders: Provider[] = [
  {
    provide: OutboxRoom,
    inject: [RESOLVED_OPTIONS, TransactionScope, NEW_KAFKA, EMIT_EVENT, ModuleRef],
    useFactory: (
      { kafka, dataSource, outbox }: ResolvedOptions,
      scope: TransactionScope,
      newKafka: NewKafka,
      emit: EmitEvent,
      modules: ModuleRef,
    ) => {
      const logger = new Logger('Outbox');
      return new OutboxRoom({
        ...outbox,
        scope,
        query: queryOutside(scope, modules, dataSource),
        newProducer: () => new CheckedProducer(newKafka, kafka.producer),
        cluster: new ClusterReader(newKafka),
        emit,
        log: (message) => logger.warn(message),
      });
    },
  },
  { provide: EventPublisher, inject: [OutboxRoom], useFactory: ({ publisher }: OutboxRoom) => publisher },
  { provide: Outbox, inject: [OutboxRoom], useFactory: ({ outbox }: OutboxRoom) => outbox },
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
        inject: [RESOLVED_OPTIONS, TransactionScope, ModuleRef],
        useFactory: ({ claimTimeoutMs, dataSource }: ResolvedOptions, scope: TransactionScope, modules: ModuleRef) =>
          new Inbox(claimTimeoutMs, queryOutside(scope, modules, dataSource)),
      },
      {
        provide: NEW_KAFKA,
        inject: [RESOLVED_OPTIONS],
        useFactory: ({ kafka }: ResolvedOptions): NewKafka => kafkaClients(kafka.client),
      },
      ...parkingProviders,
      ...outboxProviders,
      StartupChecks,
      HandlerCatalogue,
      { provide: HANDLER_PROFILES, useExisting: HandlerCatalogue },
      GroupTransactions,
      { provide: SHARED_TRANSACTIONS, useExisting: GroupTransactions },
      IdempotencyInterceptor,
      IdempotentKafkaServer,
      { provide: CONSUMER_PROGRESS, useExisting: IdempotentKafkaServer },
      IdempotencyHealth,
    ],
    exports: [
      EMIT_EVENT,
      EventPublisher,
      HandlerCatalogue,
      IdempotencyEvents,
      IdempotencyHealth,
      IdempotentKafkaServer,
      Inbox,
      Outbox,
      ParkedEvents,
      TransactionScope,
    ],
  };
}
