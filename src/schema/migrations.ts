import type { MigrationInterface, QueryRunner } from 'typeorm';
import { qualifiedTable } from '../shared/sql-identifier.js';
import { createOutbox, OUTBOX_DEDUPE, OUTBOX_EVENTS, OUTBOX_MESSAGES, OUTBOX_SHARDS } from './outbox.js';
import { createParkedEvents, PARKED_EVENTS } from './parked-events.js';
import { createProcessedEvents, PROCESSED_EVENTS } from './processed-events.js';
import { createRunningRecords, RUNNING_RECORDS } from './running-records.js';

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

  // TypeORM keeps `name` in its migrations table and orders by the digits; a minifier may rename the class, never this.
  class NestjsKafkaIdempotency1764288000000 implements MigrationInterface {
    readonly name = 'NestjsKafkaIdempotency1764288000000';

    async up(runner: QueryRunner): Promise<void> {
      await run(runner, createProcessedEvents(tableFor(runner, schema, PROCESSED_EVENTS)));
    }

    async down(runner: QueryRunner): Promise<void> {
      await drop(runner, schema, [PROCESSED_EVENTS]);
    }
  }

  class NestjsKafkaIdempotency1764374400000 implements MigrationInterface {
    readonly name = 'NestjsKafkaIdempotency1764374400000';

    async up(runner: QueryRunner): Promise<void> {
      await run(runner, createParkedEvents(tableFor(runner, schema, PARKED_EVENTS)));
      await run(runner, createRunningRecords(tableFor(runner, schema, RUNNING_RECORDS)));
    }

    async down(runner: QueryRunner): Promise<void> {
      await drop(runner, schema, [RUNNING_RECORDS, PARKED_EVENTS]);
    }
  }

  class NestjsKafkaIdempotency1764460800000 implements MigrationInterface {
    readonly name = 'NestjsKafkaIdempotency1764460800000';

    async up(runner: QueryRunner): Promise<void> {
      const statements = createOutbox({
        messages: tableFor(runner, schema, OUTBOX_MESSAGES),
        events: tableFor(runner, schema, OUTBOX_EVENTS),
        shards: tableFor(runner, schema, OUTBOX_SHARDS),
        dedupe: tableFor(runner, schema, OUTBOX_DEDUPE),
      });
      await run(runner, statements);
    }

    async down(runner: QueryRunner): Promise<void> {
      await run(runner, [`DROP VIEW ${tableFor(runner, schema, OUTBOX_EVENTS)}`]);
      await drop(runner, schema, [OUTBOX_DEDUPE, OUTBOX_SHARDS, OUTBOX_MESSAGES]);
    }
  }

  return [
    NestjsKafkaIdempotency1764288000000,
    NestjsKafkaIdempotency1764374400000,
    NestjsKafkaIdempotency1764460800000,
  ];
}

/** Fails, rather than taking them with it, when other objects depend on a table. */
async function drop(runner: QueryRunner, schema: string | undefined, tables: readonly string[]): Promise<void> {
  await run(
    runner,
    tables.map((table) => `DROP TABLE ${tableFor(runner, schema, table)}`),
  );
}

async function run(runner: QueryRunner, statements: readonly string[]): Promise<void> {
  for (const statement of statements) await runner.query(statement);
}

/** TypeORM's own `schema` does not reach raw SQL, so it is put in here: else the tables would be made in one schema and looked for in another. */
function tableFor(runner: QueryRunner, schema: string | undefined, table: string): string {
  return qualifiedTable(schema ?? dataSourceSchema(runner), table);
}

/** TypeORM 1 calls it `dataSource` and keeps `connection` as its old name; 0.3 has only that. */
function dataSourceSchema(runner: QueryRunner): string | undefined {
  const seam = runner as { dataSource?: QueryRunner['dataSource']; connection?: QueryRunner['dataSource'] };
  const options = (seam.dataSource ?? seam.connection)?.options;
  return options !== undefined && 'schema' in options ? options.schema : undefined;
}
