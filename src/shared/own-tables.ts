import { IdempotencyError } from './errors.js';
import { oneLine } from './one-line.js';
import { qualifiedTable } from './sql-identifier.js';
import { within } from './within.js';

/** How a room asks the database: one statement, committed by itself, outside of any transaction of the caller. Every statement of ours answers with rows, also through TypeORM. */
export type Query = (sql: string, parameters: unknown[]) => Promise<unknown[]>;

/** A connection that is half open would else be waited for until the system gives it up. What is done after all was asked for, and is found done by the next try. */
const LONGEST_MS = 20_000;

export interface OwnTablesParts {
  readonly query: Query;
  /** Finds the tables' names in a statement. */
  readonly names: RegExp;
  /** Whose they are, to complete "the tables of …". */
  readonly of: string;
}

/** Tables of a room and how they are asked. Knows where they stand once the start-up check has found them. */
export class OwnTables {
  #schema: string | undefined;
  /** Each statement with its tables' names qualified. */
  readonly #qualified = new Map<string, string>();

  constructor(private readonly parts: OwnTablesParts) {}

  open(schema: string): void {
    this.#schema = schema;
    this.#qualified.clear();
  }

  /** The statement as it is sent. Only constants come here. */
  text(statement: string): string {
    const schema = this.#schema;
    if (schema === undefined)
      throw new Error(`The tables of ${this.parts.of} are used before the module has checked them`);
    let text = this.#qualified.get(statement);
    if (text === undefined) {
      text = statement.replace(this.parts.names, (name) => qualifiedTable(schema, name));
      this.#qualified.set(statement, text);
    }
    return text;
  }

  /** Throws DATABASE_UNAVAILABLE, whatever the database says: nothing of it is a record's fault, and the same call can succeed later. */
  async run<Row>(statement: string, parameters: unknown[]): Promise<Row[]> {
    const text = this.text(statement);
    try {
      const asked = this.parts.query(text, parameters);
      if (!(await within(asked, LONGEST_MS))) throw new Error(`no answer within ${LONGEST_MS / 1000} s`);
      return (await asked) as Row[];
    } catch (error) {
      const said = error instanceof Error ? oneLine(error.message, 255) : 'no reason given';
      throw new IdempotencyError(
        'DATABASE_UNAVAILABLE',
        `The tables of ${this.parts.of} cannot be used: ${said}. Nothing was decided; it is tried again`,
        { cause: error, retryable: true },
      );
    }
  }
}
