import { Controller, Module } from '@nestjs/common';
import { EventPattern, Payload } from '@nestjs/microservices';
import { InjectRepository, TypeOrmModule } from '@nestjs/typeorm';
import { IdempotencyModule, Idempotent } from 'nestjs-kafka-idempotency';
import { idempotencyEntities, idempotencyMigrations } from 'nestjs-kafka-idempotency/schema';
import { Column, Entity, PrimaryGeneratedColumn, Repository } from 'typeorm';
import { setting } from './setting.js';

@Entity('effects')
export class Effect {
  @PrimaryGeneratedColumn({ type: 'bigint' })
  id!: string;

  @Column({ name: 'event_id', type: 'text' })
  eventId!: string;
}

@Controller()
export class OrderEvents {
  constructor(@InjectRepository(Effect) private readonly effects: Repository<Effect>) {}

  @EventPattern<string>(setting('TOPIC'))
  @Idempotent({ consumer: 'orders' })
  async created(@Payload() order: { id: string }): Promise<void> {
    await this.effects.insert({ eventId: order.id });
  }
}

@Module({
  imports: [
    TypeOrmModule.forRoot({
      type: 'postgres',
      url: setting('DATABASE_URL'),
      schema: setting('GROUP'),
      extra: { options: `-c search_path=${setting('GROUP')}` },
      entities: [...idempotencyEntities, Effect],
      migrations: [...idempotencyMigrations({ schema: setting('GROUP') })],
      migrationsRun: true,
      retryAttempts: 0,
    }),
    TypeOrmModule.forFeature([Effect]),
    IdempotencyModule.forRoot({
      kafka: {
        client: { clientId: 'package-test', brokers: setting('KAFKA_BROKERS').split(',') },
        consumer: { groupId: setting('GROUP'), sessionTimeout: 6000, heartbeatInterval: 500 },
      },
    }),
  ],
  controllers: [OrderEvents],
})
export class AppModule {}
