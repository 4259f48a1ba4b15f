import 'reflect-metadata';
import { NestFactory } from '@nestjs/core';
import type { AsyncMicroserviceOptions } from '@nestjs/microservices';
import { IdempotencyEvents, IdempotentKafkaServer } from 'nestjs-kafka-idempotency';
import { filter, firstValueFrom } from 'rxjs';
import { AppModule } from './app.module.js';

/** Runs the app until it has met the second copy of the event, and closes it. */
export async function handleBoth(): Promise<void> {
  const app = await NestFactory.createMicroservice<AsyncMicroserviceOptions>(AppModule, {
    inject: [IdempotentKafkaServer],
    useFactory: (strategy: IdempotentKafkaServer) => ({ strategy }),
  });
  const duplicate = firstValueFrom(app.get(IdempotencyEvents).events$.pipe(filter(({ name }) => name === 'duplicate')));
  await app.listen();
  await duplicate;
  await app.close();
}
