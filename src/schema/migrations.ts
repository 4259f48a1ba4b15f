import type { MigrationInterface, QueryRunner } from 'typeorm';
import { qualifiedTable } from '../shared/sql-identifier.js';
import { createProcessedEvents, dropProcessedEvents, PROCESSED_EVENTS } from './processed-events.js';

export interface MigrationOptions {
  /** Where our tables are made. The same value as `IdempotencyModule.forRoot({ schema })`. The schema must exist. Default the DataSource's `schema`, else the first of the search_path. */
  schema?: string;
}

/**
 * The tables of this package as TypeORM migration classes: `migrations: [...idempotencyMigrations(), ...yours]`. Their names are stable, so they run once. `down` drops
 * our tables only. Throws OPTIONS_INVALID for a schema that is not a plain SQL identifier.
 */
export function idempotencyMigrations(options: MigrationOptions = {}): (new () => MigrationInterface)[] {
  const { schema } = options;
  qualifiedTable(schema, PROCESSED_EVENTS);

  class NestjsKafkaIdempotency1764288000000 implements MigrationInterface {
    /** TypeORM keeps this in its migrations table and orders by the digits; a minifier may rename the class, never this. */
    readonly name = 'NestjsKafkaIdempotency1764288000000';

    async up(runner: QueryRunner): Promise<void> {
      await run(runner, createProcessedEvents(tableFor(runner, schema)));
    }

    async down(runner: QueryRunner): Promise<void> {
      await run(runner, dropProcessedEvents(tableFor(runner, schema)));
    }
  }

  return [NestjsKafkaIdempotency1764288000000];
}

async function run(runner: QueryRunner, statements: readonly string[]): Promise<void> {
  for (const statement of statements) await runner.query(statement);
}

/** TypeORM's own `schema` does not reach raw SQL, so it is put in here: else the tables would be made in one schema and looked for in another. */
function tableFor(runner: QueryRunner, schema: string | undefined): string {
  return qualifiedTable(schema ?? dataSourceSchema(runner), PROCESSED_EVENTS);
}

/** TypeORM 1 calls it `dataSource` and keeps `connection` as its old name; 0.3 has only that. */
function dataSourceSchema(runner: QueryRunner): string | undefined {
  const seam = runner as { dataSource?: QueryRunner['dataSource']; connection?: QueryRunner['dataSource'] };
  const options = (seam.dataSource ?? seam.connection)?.options;
  return options !== undefined && 'schema' in options ? options.schema : undefined;
}
