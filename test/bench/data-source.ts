import type { TypeOrmModuleOptions } from '@nestjs/typeorm';
import type { ContenderSetup } from './workload.js';

/** The same for every contender. */
export function dataSourceOptions({ databaseUrl, schema, pool }: ContenderSetup): TypeOrmModuleOptions {
  return {
    type: 'postgres',
    url: databaseUrl,
    schema,
    poolSize: pool,
    extra: { options: `-c search_path=${schema}` },
  };
}
