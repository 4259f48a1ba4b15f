import { IdempotencyModule } from 'nestjs-kafka-idempotency';
import { idempotencyMigrations } from 'nestjs-kafka-idempotency/schema';
import { TypeOrmModule, type TypeOrmModuleOptions } from '@nestjs/typeorm';
import type { DynamicModule, Type } from '@nestjs/common';
import type { MigrationInterface } from 'typeorm';
import { BROKERS, DATABASE_URL, PREFIX, SCHEMA, SESSION_MS } from './settings.js';

/** What both services import: their own database, and the module with their own consumer group and their own outbox. */
export function connections(
  service: 'shop' | 'warehouse',
  { entities, migration }: { entities: Type[]; migration: Type<MigrationInterface> },
): DynamicModule[] {
  const name = `${PREFIX}${service}`;
  return [
    TypeOrmModule.forRoot({
      type: 'postgres',
      url: DATABASE_URL,
      schema: SCHEMA,
      connectTimeoutMS: 5_000,
      extra: { options: `-c search_path=${SCHEMA}` },
      entities,
      migrations: [...idempotencyMigrations(), migration],
      // For a sample. A real service runs its migrations once per deployment, not in every instance that starts.
      migrationsRun: true,
    } as TypeOrmModuleOptions),
    IdempotencyModule.forRoot({
      kafka: {
        client: { clientId: name, brokers: BROKERS },
        consumer: { groupId: name, sessionTimeout: SESSION_MS, heartbeatInterval: Math.round(SESSION_MS / 5) },
      },
      outbox: { lease: SESSION_MS },
    }),
  ];
}
