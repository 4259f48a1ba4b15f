import type { TypeOrmModuleOptions } from '@nestjs/typeorm';
import type { ContenderSetup } from './workload.js';

export type DataSourceSetup = Pick<ContenderSetup, 'databaseUrl' | 'schema' | 'pool'>;

/** The same for every contender. */
export function dataSourceOptions({ databaseUrl, schema, pool }: DataSourceSetup): TypeOrmModuleOptions {
  return {
    type: 'postgres',
    url: databaseUrl,
    schema,
    poolSize: pool,
    extra: { options: `-c search_path=${schema}` },
  };
}
