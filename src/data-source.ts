import type { ModuleRef } from '@nestjs/core';
import { getDataSourceToken } from '@nestjs/typeorm';
import type { DataSource } from 'typeorm';
import { IdempotencyError } from './shared/errors.js';

/** The application's DataSource of that TypeORM name. Throws DATA_SOURCE_NOT_FOUND. */
export function findDataSource(modules: ModuleRef, name: string): DataSource {
  let found: DataSource | undefined;
  try {
    found = modules.get<DataSource>(getDataSourceToken(name), { strict: false });
  } catch (cause) {
    throw notFound(name, cause);
  }
  if (found === undefined) throw notFound(name);
  return found;
}

function notFound(name: string, cause?: unknown): IdempotencyError {
  const message = `There is no DataSource '${name}' in this application, so there is no transaction to run handlers in. Import TypeOrmModule.forRoot({ name: '${name}', … }), or name another one with the option dataSource`;
  return new IdempotencyError('DATA_SOURCE_NOT_FOUND', message, { cause });
}

/** Connections the pool may open: pg's own number, however it was set. */
export function poolSizeOf(dataSource: DataSource): number {
  const { master } = dataSource.driver as unknown as { master?: { options?: { max?: number } } }; // the pg pool of TypeORM's PostgresDriver
  return master?.options?.max ?? 10;
}
