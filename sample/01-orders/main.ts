import { ValidationPipe } from '@nestjs/common';
import { NestFactory } from '@nestjs/core';
import { IdempotentKafkaServer } from 'nestjs-kafka-idempotency';
import { AppModule } from './app.module.js';
import { PORT } from './settings.js';

const app = await NestFactory.create(AppModule, { logger: ['log', 'warn', 'error'] });
app.useGlobalPipes(new ValidationPipe({ transform: true, whitelist: true }));
// inheritAppConfig: the pipe above checks events as well as requests.
app.connectMicroservice({ strategy: app.get(IdempotentKafkaServer) }, { inheritAppConfig: true });
// On SIGTERM the running handlers end, their offsets are committed, and the group is left.
app.enableShutdownHooks();
await app.startAllMicroservices();
await app.listen(PORT);
