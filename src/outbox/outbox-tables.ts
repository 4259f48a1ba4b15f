import { IdempotencyError } from '../shared/errors.js';
import { OwnTables, type Query } from '../shared/own-tables.js';

const TABLES = /\boutbox_(?:messages|shards|dedupe)\b/g;

/** The outbox's tables, which an application need not have. */
export class OutboxTables extends OwnTables {
  #missingIn: string | undefined;

  constructor(query: Query) {
    super({ query, names: TABLES, of: 'the outbox' });
  }

  /** The start-up check has not found them there. */
  missIn(schema: string): void {
    this.#missingIn = schema;
  }

  get isThere(): boolean {
    return this.#missingIn === undefined;
  }

  /** Throws SCHEMA_MISSING. */
  override text(statement: string): string {
    if (this.#missingIn !== undefined) throw missing(this.#missingIn);
    return super.text(statement);
  }
}

function missing(schema: string): IdempotencyError {
  return new IdempotencyError(
    'SCHEMA_MISSING',
    `The table "${schema}"."outbox_messages" did not exist when the application started, so nothing can be published in a transaction. Add idempotencyMigrations() of ` +
      "nestjs-kafka-idempotency/schema to the DataSource's `migrations` and run `typeorm migration:run`, or run sql/0003-outbox.sql of the package in that schema, and start again",
  );
}
