// One worker of the demo: the payments of sample/01-orders without its HTTP side, as a microservice. Started by worker-process.ts.
import { ConsoleLogger, Module, ValidationPipe, type DynamicModule } from '@nestjs/common';
import { NestFactory } from '@nestjs/core';
import type { AsyncMicroserviceOptions } from '@nestjs/microservices';
import { TypeOrmModule, type TypeOrmModuleOptions } from '@nestjs/typeorm';
import { IdempotencyEvents, IdempotencyModule, IdempotentKafkaServer } from 'nestjs-kafka-idempotency';
import ormconfig from '../../ormconfig.js';
import { Payment } from '../01-orders/payments/payment.entity.js';
import { PaymentsModule } from '../01-orders/payments/payments.module.js';
import { BROKERS } from '../01-orders/settings.js';
import type { WorkerMessage, WorkerSettings } from './worker-message.js';

@Module({})
class WorkerModule {
  static with({ group, schema, sessionMs }: WorkerSettings): DynamicModule {
    return {
      module: WorkerModule,
      imports: [
        TypeOrmModule.forRoot({
          ...ormconfig.options,
          schema,
          entities: [Payment],
          migrations: [],
        } as TypeOrmModuleOptions),
        IdempotencyModule.forRoot({
          kafka: {
            client: { clientId: group, brokers: BROKERS },
            consumer: { groupId: group, sessionTimeout: sessionMs, heartbeatInterval: Math.round(sessionMs / 3.75) },
          },
        }),
        PaymentsModule,
      ],
    };
  }
}

const settings = JSON.parse(process.argv[2] ?? '') as WorkerSettings;
const app = await NestFactory.createMicroservice<AsyncMicroserviceOptions>(WorkerModule.with(settings), {
  inject: [IdempotentKafkaServer],
  useFactory: (strategy: IdempotentKafkaServer) => ({ strategy }),
  logger: new ConsoleLogger({ json: true, logLevels: ['log', 'warn', 'error'] }),
} as AsyncMicroserviceOptions & object);
app.useGlobalPipes(new ValidationPipe({ transform: true, whitelist: true }));
app.enableShutdownHooks(['SIGTERM']);
app.get(IdempotencyEvents).events$.subscribe((event) => {
  if (event.name === 'processed') tell({ kind: 'applied' });
  if (event.name === 'duplicate') tell({ kind: 'skipped' });
  if (event.name === 'assigned') tell({ kind: 'assigned', partitions: event.partitions.length });
});
await app.listen();

function tell(message: WorkerMessage): void {
  process.send?.(message);
}
