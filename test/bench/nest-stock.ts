import { Controller, Inject, Module } from '@nestjs/common';
import { NestFactory } from '@nestjs/core';
import {
  Ctx,
  EventPattern,
  KafkaContext,
  Payload,
  Transport,
  type KafkaOptions,
  type MicroserviceOptions,
} from '@nestjs/microservices';
import { TypeOrmModule } from '@nestjs/typeorm';
import { logLevel } from 'kafkajs';
import { DataSource } from 'typeorm';
import type { Contender } from './contenders.js';
import { dataSourceOptions } from './data-source.js';
import { CONSUMER, EFFECT, HAND_CLAIM, MAX_WAIT_MS, pauseOf, type BenchEvent } from './workload.js';

/** Nest's own transport with auto-commit off: the handler's transaction, then `commitOffsets` for each message, as its documentation shows. */
export function nestStock(partitionsConsumedConcurrently: number): Contender {
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
            CONSUMER,
            headers!['event-id'],
            topic,
            partition,
            offset,
          ])) as unknown[];
          if (claimed.length === 0) return;
          await pauseOf(setup);
          await manager.query(EFFECT, [event.id]);
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
