import { subscribe } from 'node:diagnostics_channel';
import { Controller, Inject, Module, type INestMicroservice, type Type } from '@nestjs/common';
import { NestFactory } from '@nestjs/core';
import { Ctx, EventPattern, KafkaContext, Payload, type AsyncMicroserviceOptions } from '@nestjs/microservices';
import { TypeOrmModule } from '@nestjs/typeorm';
import { Kafka, logLevel } from 'kafkajs';
import { DataSource } from 'typeorm';
import {
  Idempotent,
  IdempotencyModule,
  IdempotentBatch,
  IdempotentKafkaServer,
  type IdempotencyOptions,
} from 'nestjs-kafka-idempotency';
import { until } from 'nestjs-kafka-idempotency/testing';
import type { Contender } from './contenders.js';
import { dataSourceOptions } from './data-source.js';
import { Stopwatch } from './stopwatch.js';
import {
  CONSUMER,
  EFFECT,
  EFFECTS,
  pauseOf,
  SHARED,
  timedEvents,
  type BenchEvent,
  type ContenderSetup,
} from './workload.js';

/** This package with these options; those not given are at their defaults. */
export const ours =
  (options: Partial<IdempotencyOptions> = {}): Contender =>
  async (setup, watch) => {
    @Controller()
    class Handlers {
      constructor(@Inject(DataSource) private readonly dataSource: DataSource) {}

      @EventPattern<string>(setup.topic)
      @Idempotent({ consumer: CONSUMER })
      async handle(@Payload() event: BenchEvent) {
        await pauseOf(setup);
        await this.dataSource.query(EFFECT, [event.id]);
        watch.handled();
      }
    }
    const app = await oursWith(setup, Handlers, { options, duplicate: () => watch.handled() });
    return () => app.close();
  };

/** A handler of batches, with every option at its default. */
export const oursBatch: Contender = async (setup, watch) => {
  @Controller()
  class Handlers {
    constructor(@Inject(DataSource) private readonly dataSource: DataSource) {}

    @EventPattern<string>(setup.topic)
    @IdempotentBatch({ consumer: CONSUMER })
    async handle(@Payload() events: BenchEvent[]) {
      await pauseOf(setup);
      await this.dataSource.query(EFFECTS, [events.map(({ id }) => id)]);
      watch.handled(events.length);
    }
  }
  const app = await oursWith(setup, Handlers, { duplicate: () => watch.handled() });
  return () => app.close();
};

/** The backlog is handled, the group set back to its beginning, and what is timed is how the duplicates are skipped. */
export const oursReplay: Contender = async (setup, watch) => {
  const before = new Stopwatch(timedEvents(setup), setup.warmUp);
  const stop = await ours({ messagesPerTransaction: SHARED })(setup, before);
  await before.finished;
  await stop();
  await setBack(setup);
  @Controller()
  class Handlers {
    @EventPattern<string>(setup.topic)
    @Idempotent({ consumer: CONSUMER })
    handle() {
      throw new Error('this event was handled before');
    }
  }
  const app = await oursWith(setup, Handlers, { duplicate: () => watch.handled() });
  return () => app.close();
};

async function setBack({ group: groupId, brokers, topic }: ContenderSetup): Promise<void> {
  const admin = new Kafka({ clientId: groupId, brokers: [...brokers], logLevel: logLevel.ERROR }).admin();
  await admin.connect();
  const partitions = (await admin.fetchTopicOffsets(topic)).map(({ partition }) => ({ partition, offset: '0' }));
  await admin.setOffsets({ groupId, topic, partitions });
  await admin.disconnect();
}

/** The default while the first partition fails from its first record on; what is timed are the other five. */
export const oursFailing: Contender = async (setup, watch) => {
  let isMended = false;
  let mendedEvents = 0;
  const done = (partition: number) => {
    if (partition === 0) mendedEvents += 1;
    else watch.handled();
  };
  @Controller()
  class Handlers {
    constructor(@Inject(DataSource) private readonly dataSource: DataSource) {}

    @EventPattern<string>(setup.topic)
    @Idempotent({ consumer: CONSUMER, retry: { attempts: Infinity } })
    async handle(@Payload() event: BenchEvent, @Ctx() context: KafkaContext) {
      await pauseOf(setup);
      await this.dataSource.query(EFFECT, [event.id]);
      const partition = context.getPartition();
      if (partition === 0 && !isMended) throw new Error('not before the others');
      done(partition);
    }
  }
  const app = await oursWith(setup, Handlers, { duplicate: done });
  return async () => {
    isMended = true;
    await until(() => mendedEvents >= setup.inFirst, { what: 'the first partition', timeoutMs: 60_000 });
    await app.close();
  };
};

interface Wiring {
  readonly options?: Partial<IdempotencyOptions>;
  /** Called for each record that is skipped: what is timed are records, not calls of the handler. */
  readonly duplicate: (partition: number) => void;
}

async function oursWith(
  setup: ContenderSetup,
  controller: Type,
  { options = {}, duplicate }: Wiring,
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
  // By its channel, so that events of other names are heard by nobody, as in most applications.
  subscribe('nestjs-kafka-idempotency:duplicate', (event) => duplicate((event as { partition: number }).partition));
  await app.listen();
  return app;
}
