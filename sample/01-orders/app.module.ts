import { Module } from '@nestjs/common';
import { TypeOrmModule } from '@nestjs/typeorm';
import { IdempotencyModule } from 'nestjs-kafka-idempotency';
import { idempotencyMigrations } from 'nestjs-kafka-idempotency/schema';
import ormconfig from '../../ormconfig.js';
import { HealthController } from './health.controller.js';
import { OrdersModule } from './orders/orders.module.js';
import { CreatePayments1764288000001 } from './payments/create-payments.migration.js';
import { Payment } from './payments/payment.entity.js';
import { PaymentsModule } from './payments/payments.module.js';
import { BROKERS } from './settings.js';

@Module({
  imports: [
    TypeOrmModule.forRoot({
      ...ormconfig.options,
      entities: [Payment],
      migrations: [...idempotencyMigrations(), CreatePayments1764288000001],
      // For a sample. A real service runs its migrations once per deployment, not in every instance that starts.
      migrationsRun: true,
    }),
    IdempotencyModule.forRoot({
      kafka: { client: { clientId: 'orders', brokers: BROKERS }, consumer: { groupId: 'payments' } },
    }),
    OrdersModule,
    PaymentsModule,
  ],
  controllers: [HealthController],
})
export class AppModule {}
