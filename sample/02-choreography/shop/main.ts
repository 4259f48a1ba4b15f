import { ValidationPipe } from '@nestjs/common';
import { NestFactory } from '@nestjs/core';
import { IdempotentKafkaServer } from 'nestjs-kafka-idempotency';
import { PORT } from '../settings.js';
import { ShopModule } from './shop.module.js';

// HTTP and events.
const app = await NestFactory.create(ShopModule, { logger: ['log', 'warn', 'error'] });
app.useGlobalPipes(new ValidationPipe({ transform: true, whitelist: true }));
app.connectMicroservice({ strategy: app.get(IdempotentKafkaServer) }, { inheritAppConfig: true });
app.enableShutdownHooks();
await app.startAllMicroservices();
await app.listen(PORT);
