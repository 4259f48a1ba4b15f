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

/** The pg pool of TypeORM's PostgresDriver. */
interface Pool {
  readonly options?: { readonly max?: number };
  on?(event: 'connect', listener: (client: { on(event: 'error', listener: () => void): unknown }) => void): unknown;
}

function poolOf(dataSource: DataSource): Pool | undefined {
  return (dataSource.driver as unknown as { master?: Pool }).master;
}

/** Connections the pool may open: pg's own number, however it was set. */
export function poolSizeOf(dataSource: DataSource): number {
  return poolOf(dataSource)?.options?.max ?? 10;
}

/**
 * The pool takes its own listener off a new client while it still reads the packet that made it ready, and TypeORM's comes a moment later. A session
 * that ends in that packet would be an 'error' event nobody listens to, and end the process. Whoever uses the client hears of it by its next statement.
 */
export function surviveStillbornSessions(dataSource: DataSource): void {
  poolOf(dataSource)?.on?.('connect', (client) => client.on('error', () => undefined));
}
