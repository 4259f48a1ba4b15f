// One worker of the soak, in a process of its own. Started by worker-process.ts.
import { ConsoleLogger, Controller, Inject, Injectable, Module, type DynamicModule, type Type } from '@nestjs/common';
import { ModuleRef, NestFactory } from '@nestjs/core';
import { Ctx, EventPattern, Payload, type AsyncMicroserviceOptions } from '@nestjs/microservices';
import { TypeOrmModule, type TypeOrmModuleOptions } from '@nestjs/typeorm';
import * as library from 'nestjs-kafka-idempotency';
import {
  BatchItemError,
  currentDelivery,
  IdempotencyEvents,
  IdempotencyModule,
  Idempotent,
  IdempotentBatch,
  IdempotentKafkaServer,
  type IdempotencyOptions,
  type BatchContext,
  type Delivery,
  type IdempotentOptions,
} from 'nestjs-kafka-idempotency';
import { DataSource } from 'typeorm';
import { MODE_OPTIONS, type Mode } from './mode.js';
import type { Place } from './place.js';
import {
  CONSUMERS,
  HANDLER_TIMEOUT_MS,
  HAS_OUTBOX,
  HAS_PARKING,
  OUTPUT_TOPIC,
  type SoakEvent,
  type SoakOutput,
} from './workload.js';

export interface WorkerPlan {
  readonly place: Place;
  readonly mode: Mode;
  /** The cause of the poison is mended: replay what is parked. */
  readonly mended: boolean;
}

/** What it tells its parent. */
export type WorkerReport =
  | { readonly kind: 'moved'; readonly partition: string }
  | { readonly kind: 'assigned'; readonly partitions: string[] }
  | { readonly kind: 'replayed'; readonly outcomes: unknown };

/** So long what a killed worker was to send waits for another one. */
const OUTBOX_LEASE_MS = 5_000;

const { place, mode, mended } = JSON.parse(process.argv[2] ?? '') as WorkerPlan;
process.once('disconnect', () => process.exit(1)); // the run is gone

function handlersOf({ consumer, topic, holdKey }: (typeof CONSUMERS)[number]): Type {
  const options = { consumer, ...(HAS_PARKING && { holdKey, redelivery: { rounds: 0 } }) } as IdempotentOptions;
  return mode === 'batch' ? batchHandlers(topic, options) : singleHandlers(topic, options);
}

function singleHandlers(topic: string, options: IdempotentOptions): Type {
  @Controller()
  class Handlers {
    constructor(@Inject(Work) private readonly work: Work) {}

    @EventPattern<string>(topic)
    @Idempotent(options)
    async handle(@Payload() event: SoakEvent): Promise<void> {
      await this.work.handle(event, currentDelivery()!);
    }
  }
  return Handlers;
}

/** Of the failures every other one is named; the rest has to be found. */
function batchHandlers(topic: string, options: IdempotentOptions): Type {
  @Controller()
  class Handlers {
    constructor(@Inject(Work) private readonly work: Work) {}

    @EventPattern<string>(topic)
    @IdempotentBatch({ ...options, maxSize: 50 })
    async handle(@Payload() events: SoakEvent[], @Ctx() context: BatchContext): Promise<void> {
      const deliveries = context.getDeliveries();
      for (const [index, event] of events.entries()) {
        try {
          await this.work.handle(event, deliveries[index]!);
        } catch (cause) {
          throw event.seq % 2 === 0 ? new BatchItemError(index, { cause }) : cause;
        }
      }
    }
  }
  return Handlers;
}

/** Not exported by every version this runs against. */
interface Publishing {
  publish(topic: string, value: SoakOutput, options: { key: string }): Promise<unknown>;
}

/** What every handler does. */
@Injectable()
class Work {
  readonly #publisher: Publishing | undefined;

  constructor(
    @Inject(DataSource) private readonly database: DataSource,
    @Inject(ModuleRef) modules: ModuleRef,
  ) {
    if (HAS_OUTBOX)
      this.#publisher = modules.get<Publishing>(exported<Publishing>('EventPublisher'), { strict: false });
  }

  async handle(event: SoakEvent, { consumer, partition, offset, attempt }: Delivery): Promise<void> {
    // First, for it locks the key: effects and events of one key are then numbered in the order of their transactions, also where a parked one runs beside its lane.
    await this.database.query(
      `INSERT INTO balances (consumer, key, amount) VALUES ($1, $2, 1)
       ON CONFLICT (consumer, key) DO UPDATE SET amount = balances.amount + 1`,
      [consumer, event.key],
    );
    await this.database.query(
      `INSERT INTO effects (consumer, event_id, key, partition, record_offset) VALUES ($1, $2, $3, $4, $5)`,
      [consumer, event.id, event.key, partition, offset],
    );
    await this.#publisher?.publish(OUTPUT_TOPIC, { consumer, id: event.id }, { key: `${consumer}/${event.key}` });
    if (attempt <= (event.failures ?? 0)) throw new Error(`attempt ${attempt} has no luck`);
    if (event.poison && !mended) throw new Error('this event cannot be handled yet');
  }
}

@Module({})
class WorkerModule {}

function workerModule(): DynamicModule {
  return {
    module: WorkerModule,
    imports: [
      TypeOrmModule.forRoot({
        type: 'postgres',
        url: place.databaseUrl,
        retryAttempts: Infinity,
        retryDelay: 500,
        extra: { max: 8, connectionTimeoutMillis: 3_000, keepAlive: true },
      } as TypeOrmModuleOptions),
      IdempotencyModule.forRoot(options()),
    ],
    controllers: CONSUMERS.map(handlersOf),
    providers: [Work],
  };
}

function options(): IdempotencyOptions {
  const { brokers, group, sessionMs } = place;
  return {
    ...MODE_OPTIONS[mode],
    ...(HAS_OUTBOX && { outbox: { lease: OUTBOX_LEASE_MS } }),
    timeout: HANDLER_TIMEOUT_MS,
    claimTimeout: 1_000,
    retry: { attempts: 5, delay: 50, factor: 2, maxDelay: 500 },
    kafka: {
      client: {
        clientId: group,
        brokers: [...brokers],
        connectionTimeout: 1_000,
        requestTimeout: Math.max(2_000, sessionMs),
      },
      // A join that was sent to a frozen coordinator is waited for until the rebalance timeout is over.
      consumer: {
        groupId: group,
        sessionTimeout: sessionMs,
        heartbeatInterval: Math.round(sessionMs / 5),
        rebalanceTimeout: 2 * sessionMs,
      },
    },
    shutdown: { deadline: '10s' },
  };
}

function exported<T>(name: string): Type<T> {
  return (library as unknown as Record<string, Type<T>>)[name]!;
}

function tell(report: WorkerReport): void {
  process.send?.(report);
}

/** Not exported by every version this runs against. */
interface Replaying {
  replay(filter: { state: 'dead' }, options: { by: string }): Promise<unknown>;
}

const app = await NestFactory.createMicroservice<AsyncMicroserviceOptions>(workerModule(), {
  inject: [IdempotentKafkaServer],
  useFactory: (strategy: IdempotentKafkaServer) => ({ strategy }),
  logger: new ConsoleLogger({ json: true, logLevels: ['log', 'warn', 'error'] }),
  abortOnError: false,
} as AsyncMicroserviceOptions & object);
app.enableShutdownHooks(['SIGTERM']);
app.get(IdempotencyEvents).events$.subscribe((event) => {
  if (event.name === 'processed' || event.name === 'duplicate')
    tell({ kind: 'moved', partition: `${event.topic}/${event.partition}` });
  if (event.name === 'assigned')
    tell({ kind: 'assigned', partitions: event.partitions.map(({ topic, partition }) => `${topic}/${partition}`) });
});
await app.listen();
if (mended) {
  const parked = app.get<Replaying>(exported<Replaying>('ParkedEvents'));
  tell({ kind: 'replayed', outcomes: await parked.replay({ state: 'dead' }, { by: 'soak' }) });
}
