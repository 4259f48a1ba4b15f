import { channel } from 'node:diagnostics_channel';
import { Controller, Inject, Module, type INestMicroservice, type Type } from '@nestjs/common';
import { NestFactory } from '@nestjs/core';
import {
  Ctx,
  EventPattern,
  KafkaContext,
  Payload,
  Transport,
  type AsyncMicroserviceOptions,
  type KafkaOptions,
  type MicroserviceOptions,
} from '@nestjs/microservices';
import { TypeOrmModule, type TypeOrmModuleOptions } from '@nestjs/typeorm';
import { Kafka, logLevel, type EachBatchPayload, type KafkaMessage } from 'kafkajs';
import { DataSource, type EntityManager } from 'typeorm';
import {
  Idempotent,
  IdempotencyEvents,
  IdempotencyModule,
  IdempotentBatch,
  IdempotentKafkaServer,
  type IdempotencyEvent,
  type IdempotencyOptions,
} from 'nestjs-kafka-idempotency';
import { until } from 'nestjs-kafka-idempotency/testing';
import { Stopwatch } from './stopwatch.js';
import {
  EFFECT,
  EFFECTS,
  HAND_CLAIM,
  HAND_CLAIMS,
  PARTITIONS,
  POOL,
  type BenchEvent,
  type ContenderSetup,
} from './workload.js';

/** Starts consuming; the answer stops it again, offsets committed. */
export type Contender = (setup: ContenderSetup, watch: Stopwatch) => Promise<() => Promise<void>>;

const MAX_WAIT_MS = 100;
/** Messages of a transaction, where several share one. */
const SHARED = 200;
const BATCH = 500;

function dataSourceOptions({ databaseUrl, schema }: ContenderSetup): TypeOrmModuleOptions {
  return {
    type: 'postgres',
    url: databaseUrl,
    schema,
    poolSize: POOL,
    extra: { options: `-c search_path=${schema}` },
  };
}

type Handle = (batch: EachBatchPayload['batch'], messages: KafkaMessage[], dataSource: DataSource) => Promise<void>;

/** kafkajs `eachBatch`, in chunks of so many messages, one offset commit a batch: what a careful team writes by hand. */
async function handLoop(setup: ContenderSetup, size: number, handle: Handle): Promise<() => Promise<void>> {
  const dataSource = await new DataSource(
    dataSourceOptions(setup) as ConstructorParameters<typeof DataSource>[0],
  ).initialize();
  const kafka = new Kafka({ clientId: setup.group, brokers: [...setup.brokers], logLevel: logLevel.ERROR });
  const consumer = kafka.consumer({ groupId: setup.group, maxWaitTimeInMs: MAX_WAIT_MS });
  await consumer.connect();
  await consumer.subscribe({ topics: [setup.topic], fromBeginning: true });

  const eachBatch = async ({ batch, resolveOffset, heartbeat, commitOffsetsIfNecessary }: EachBatchPayload) => {
    for (let at = 0; at < batch.messages.length; at += size) {
      const messages = batch.messages.slice(at, at + size);
      await handle(batch, messages, dataSource);
      resolveOffset(messages.at(-1)!.offset);
      await heartbeat();
    }
    const next = (BigInt(batch.lastOffset()) + 1n).toString();
    await commitOffsetsIfNecessary({
      topics: [{ topic: batch.topic, partitions: [{ partition: batch.partition, offset: next }] }],
    });
  };
  await consumer.run({
    autoCommit: false,
    eachBatchAutoResolve: false,
    partitionsConsumedConcurrently: PARTITIONS,
    eachBatch,
  });
  return async () => {
    await consumer.disconnect();
    await dataSource.destroy();
  };
}

const eventOf = ({ value }: KafkaMessage) => JSON.parse(value!.toString()) as BenchEvent;
const idOf = ({ headers }: KafkaMessage) => headers!['event-id']!.toString();

/** One transaction a message. */
const handMessage: Contender = (setup, watch) =>
  handLoop(setup, 1, async ({ topic, partition }, [message], dataSource) => {
    const event = eventOf(message!);
    await dataSource.transaction(async (manager) => {
      const values = ['bench', idOf(message!), topic, partition, message!.offset];
      const claimed = (await manager.query(HAND_CLAIM, values)) as unknown[];
      if (claimed.length > 0) await manager.query(EFFECT, [event.id]);
    });
    watch.handled();
  });

/** One transaction for so many messages, one claim for all of them; then whatever is to be done with the fresh events. */
function handTogether(size: number, work: (manager: EntityManager, fresh: BenchEvent[]) => Promise<void>): Contender {
  return (setup, watch) =>
    handLoop(setup, size, async ({ topic, partition }, messages, dataSource) => {
      const [ids, offsets] = [messages.map(idOf), messages.map(({ offset }) => offset)];
      await dataSource.transaction(async (manager) => {
        const values = ['bench', topic, partition, ids, offsets];
        const claimed = (await manager.query(HAND_CLAIMS, values)) as { event_id: string }[];
        const toDo = new Set(claimed.map(({ event_id }) => event_id));
        // delete: of an id that comes twice the first runs
        await work(manager, messages.filter((_, at) => toDo.delete(ids[at]!)).map(eventOf));
      });
      watch.handled(messages.length);
    });
}

/** One statement for each event, awaited, as in a handler of single events. */
const handShared = handTogether(SHARED, async (manager, fresh) => {
  for (const { id } of fresh) await manager.query(EFFECT, [id]);
});

/** One statement for all. */
const handBatch = handTogether(BATCH, async (manager, fresh) => {
  if (fresh.length > 0) await manager.query(EFFECTS, [fresh.map(({ id }) => id)]);
});

/** Nest's own transport with auto-commit off: the handler's transaction, then `commitOffsets` for each message, as its documentation shows. */
function nestStock(partitionsConsumedConcurrently: number): Contender {
  return async (setup, watch) => {
    @Controller()
    class Handlers {
      constructor(@Inject(DataSource) private readonly dataSource: DataSource) {}

      @EventPattern<string>(setup.topic)
      async handle(@Payload() event: BenchEvent, @Ctx() context: KafkaContext) {
        const { offset, headers } = context.getMessage();
        const [topic, partition] = [context.getTopic(), context.getPartition()];
        await this.dataSource.transaction(async (manager) => {
          const claimed = (await manager.query(HAND_CLAIM, [
            'bench',
            headers!['event-id'],
            topic,
            partition,
            offset,
          ])) as unknown[];
          if (claimed.length > 0) await manager.query(EFFECT, [event.id]);
        });
        await context.getConsumer().commitOffsets([{ topic, partition, offset: (BigInt(offset) + 1n).toString() }]);
        watch.handled();
      }
    }
    @Module({ imports: [TypeOrmModule.forRoot(dataSourceOptions(setup))], controllers: [Handlers] })
    class BenchModule {}

    const options: KafkaOptions = {
      transport: Transport.KAFKA,
      options: {
        client: { clientId: setup.group, brokers: [...setup.brokers], logLevel: logLevel.ERROR },
        consumer: { groupId: setup.group, maxWaitTimeInMs: MAX_WAIT_MS },
        postfixId: '',
        subscribe: { fromBeginning: true },
        run: { autoCommit: false, partitionsConsumedConcurrently },
      },
    };
    const app = await NestFactory.createMicroservice<MicroserviceOptions>(BenchModule, {
      ...options,
      logger: ['error'],
    });
    await app.listen();
    return () => app.close();
  };
}

/** This package with these options; those not given are at their defaults. */
const ours =
  (options: Partial<IdempotencyOptions> = {}): Contender =>
  async (setup, watch) => {
    @Controller()
    class Handlers {
      constructor(@Inject(DataSource) private readonly dataSource: DataSource) {}

      @EventPattern<string>(setup.topic)
      @Idempotent({ consumer: 'bench' })
      async handle(@Payload() event: BenchEvent) {
        await this.dataSource.query(EFFECT, [event.id]);
        watch.handled();
      }
    }
    const app = await oursWith(setup, Handlers, options);
    return () => app.close();
  };

/** A handler of batches, with every option at its default. */
const oursBatch: Contender = async (setup, watch) => {
  @Controller()
  class Handlers {
    constructor(@Inject(DataSource) private readonly dataSource: DataSource) {}

    @EventPattern<string>(setup.topic)
    @IdempotentBatch({ consumer: 'bench' })
    async handle(@Payload() events: BenchEvent[]) {
      await this.dataSource.query(EFFECTS, [events.map(({ id }) => id)]);
      watch.handled(events.length);
    }
  }
  const app = await oursWith(setup, Handlers);
  return () => app.close();
};

/** The backlog is handled, the group set back to its beginning, and what is timed is how the duplicates are skipped. */
const oursReplay: Contender = async (setup, watch) => {
  const before = new Stopwatch(timedEvents(setup));
  const stop = await ours({ messagesPerTransaction: SHARED })(setup, before);
  await before.finished;
  await stop();
  await setBack(setup);
  @Controller()
  class Handlers {
    @EventPattern<string>(setup.topic)
    @Idempotent({ consumer: 'bench' })
    handle() {
      throw new Error('this event was handled before');
    }
  }
  const app = await oursWith(setup, Handlers, {}, (event) => {
    if (event.name === 'duplicate') watch.handled();
  });
  return () => app.close();
};

async function setBack({ group: groupId, brokers, topic }: ContenderSetup): Promise<void> {
  const admin = new Kafka({ clientId: groupId, brokers: [...brokers], logLevel: logLevel.ERROR }).admin();
  await admin.connect();
  const partitions = Array.from({ length: PARTITIONS }, (_, partition) => ({ partition, offset: '0' }));
  await admin.setOffsets({ groupId, topic, partitions });
  await admin.disconnect();
}

/** The default while the first partition fails from its first record on; what is timed are the other five. */
const oursFailing: Contender = async (setup, watch) => {
  let isMended = false;
  let mendedEvents = 0;
  @Controller()
  class Handlers {
    constructor(@Inject(DataSource) private readonly dataSource: DataSource) {}

    @EventPattern<string>(setup.topic)
    @Idempotent({ consumer: 'bench', retry: { attempts: Infinity } })
    async handle(@Payload() event: BenchEvent, @Ctx() context: KafkaContext) {
      await this.dataSource.query(EFFECT, [event.id]);
      if (context.getPartition() !== 0) watch.handled();
      else if (isMended) mendedEvents += 1;
      else throw new Error('not before the others');
    }
  }
  const app = await oursWith(setup, Handlers);
  return async () => {
    isMended = true;
    await until(() => mendedEvents >= setup.inFirst, { what: 'the first partition', timeoutMs: 60_000 });
    await app.close();
  };
};

async function oursWith(
  setup: ContenderSetup,
  controller: Type,
  options: Partial<IdempotencyOptions> = {},
  hear: (event: IdempotencyEvent) => void = () => {},
): Promise<INestMicroservice> {
  @Module({
    imports: [
      TypeOrmModule.forRoot(dataSourceOptions(setup)),
      IdempotencyModule.forRoot({
        ...options,
        kafka: {
          client: { clientId: setup.group, brokers: [...setup.brokers], logLevel: logLevel.ERROR },
          consumer: { groupId: setup.group },
        },
      }),
    ],
    controllers: [controller],
  })
  class BenchModule {}

  const app = await NestFactory.createMicroservice<AsyncMicroserviceOptions>(BenchModule, {
    inject: [IdempotentKafkaServer],
    useFactory: (strategy: IdempotentKafkaServer) => ({ strategy }),
    logger: ['error', 'warn'],
  } as AsyncMicroserviceOptions & object);
  app.get(IdempotencyEvents).events$.subscribe(hear);
  await app.listen();
  return app;
}

/** The backlog stands in the outbox, and what is timed is how it is sent. */
const relay: Contender = async (setup, watch) => {
  channel('nestjs-kafka-idempotency:relayed').subscribe((event) => {
    watch.handled((event as IdempotencyEvent & { messages: number }).messages);
  });
  @Module({
    imports: [
      TypeOrmModule.forRoot(dataSourceOptions(setup)),
      IdempotencyModule.forRoot({
        kafka: {
          client: { clientId: setup.group, brokers: [...setup.brokers], logLevel: logLevel.ERROR },
          consumer: { groupId: setup.group },
        },
      }),
    ],
  })
  class RelayModule {}
  const app = await NestFactory.createApplicationContext(RelayModule, { logger: ['error', 'warn'] });
  return () => app.close();
};

/** In the order of the table. */
export const CONTENDERS: Record<string, Contender> = {
  'nest-stock': nestStock(1),
  'nest-stock-6': nestStock(PARTITIONS),
  'hand-message': handMessage,
  'ours-default': ours(),
  'ours-window': ours({ durability: 'window' }),
  'ours-replay': oursReplay,
  'ours-failing': oursFailing,
  'hand-shared': handShared,
  'ours-shared': ours({ messagesPerTransaction: SHARED }),
  'hand-batch': handBatch,
  'ours-batch': oursBatch,
  relay,
};

/** What a row's ratio is taken against. */
export const AGAINST: Record<string, string | null> = {
  'nest-stock': null,
  'nest-stock-6': 'nest-stock',
  'hand-message': 'nest-stock-6',
  'ours-default': 'hand-message',
  'ours-window': 'ours-default',
  'ours-replay': 'ours-default',
  'ours-failing': 'ours-default',
  'hand-shared': 'nest-stock-6',
  'ours-shared': 'hand-shared',
  'hand-batch': 'nest-stock-6',
  'ours-batch': 'hand-batch',
  relay: null,
};

/** How many times the events of the others a row gets: what is fast would be done before it had got going. */
export const MORE_EVENTS: Readonly<Record<string, number>> = {
  'hand-shared': 5,
  'ours-shared': 5,
  'hand-batch': 15,
  'ours-batch': 15,
  relay: 10,
};

/** Rows that are done too soon to be timed well get so many times the events. */
export const TIMES_EVENTS: Record<string, number> = { 'ours-replay': 4 };

/** How many events of a run are timed. */
export function timedEvents({ id, events, inFirst }: ContenderSetup): number {
  return id === 'ours-failing' ? events - inFirst : events;
}
