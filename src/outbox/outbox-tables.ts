import { IdempotencyError } from '../shared/errors.js';
import { oneLine } from '../shared/one-line.js';
import { qualifiedTable } from '../shared/sql-identifier.js';
import { within } from '../shared/within.js';

/** One statement, committed by itself, outside of any transaction of the caller. Every statement of ours answers with rows, also through TypeORM. */
export type Query = (sql: string, parameters: unknown[]) => Promise<unknown[]>;

/** A connection that is half open would else be waited for until the system gives it up. */
const LONGEST_MS = 20_000;

const OURS = /\boutbox_(?:messages|shards|dedupe)\b/g;

/** Our tables and how they are asked. Knows where they stand once the start-up check has found them. */
export class OutboxTables {
  #schema: string | undefined;
  #isThere = false;
  readonly #qualified = new Map<string, string>();

  constructor(private readonly query: Query) {}

  open(schema: string, isThere: boolean): void {
    this.#schema = schema;
    this.#isThere = isThere;
    this.#qualified.clear();
  }

  get isThere(): boolean {
    return this.#isThere;
  }

  /** The statement as it is sent. Only constants come here. Throws SCHEMA_MISSING. */
  text(statement: string): string {
    const schema = this.#schema;
    if (schema === undefined) throw new Error('The outbox is used before the module has checked its tables');
    if (!this.#isThere) throw missing(schema);
    let text = this.#qualified.get(statement);
    if (text === undefined) {
      text = statement.replace(OURS, (name) => qualifiedTable(schema, name));
      this.#qualified.set(statement, text);
    }
    return text;
  }

  /** Throws DATABASE_UNAVAILABLE, whatever the database says: the same call can succeed later. */
  async run<Row>(statement: string, parameters: unknown[]): Promise<Row[]> {
    const text = this.text(statement);
    try {
      const asked = this.query(text, parameters);
      if (!(await within(asked, LONGEST_MS))) throw new Error(`no answer within ${LONGEST_MS / 1000} s`);
      return (await asked) as Row[];
    } catch (error) {
      const said = error instanceof Error ? oneLine(error.message, 255) : 'no reason given';
      throw new IdempotencyError('DATABASE_UNAVAILABLE', `The tables of the outbox cannot be used: ${said}`, {
        cause: error,
        retryable: true,
      });
    }
  }
}

function missing(schema: string): IdempotencyError {
  return new IdempotencyError(
    'SCHEMA_MISSING',
    `The table "${schema}"."outbox_messages" did not exist when the application started, so nothing can be published in a transaction. Add idempotencyMigrations() of ` +
      "nestjs-kafka-idempotency/schema to the DataSource's `migrations` and run `typeorm migration:run`, or run sql/0003-outbox.sql of the package in that schema, and start again",
  );
}
