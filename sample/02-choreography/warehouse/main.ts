import { ValidationPipe } from '@nestjs/common';
import { NestFactory } from '@nestjs/core';
import type { AsyncMicroserviceOptions } from '@nestjs/microservices';
import { IdempotentKafkaServer } from 'nestjs-kafka-idempotency';
import { WarehouseModule } from './warehouse.module.js';

// Events only.
const app = await NestFactory.createMicroservice<AsyncMicroserviceOptions>(WarehouseModule, {
  inject: [IdempotentKafkaServer],
  useFactory: (strategy: IdempotentKafkaServer) => ({ strategy }),
  logger: ['log', 'warn', 'error'],
} as AsyncMicroserviceOptions & object);
app.useGlobalPipes(new ValidationPipe({ transform: true, whitelist: true }));
app.enableShutdownHooks();
await app.listen();
