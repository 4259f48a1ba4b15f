import { IdempotencyError, type ErrorCode } from '../shared/errors.js';
import { qualifiedTable } from '../shared/sql-identifier.js';
import { catalogEntry, schemasWithTable, type CatalogEntry, type CatalogQuery } from './catalog.js';
import { checkDatabase, type DatabaseFacts } from './database-check.js';
import { OUTBOX_MESSAGES_SHAPE, OUTBOX_SHAPES } from './outbox.js';
import { PARKED_EVENTS_SHAPE } from './parked-events.js';
import { PROCESSED_EVENTS_SHAPE } from './processed-events.js';
import { RUNNING_RECORDS_SHAPE } from './running-records.js';
import { tableFaults, type TableShape } from './table-shape.js';

export interface SchemaFacts extends DatabaseFacts {
  /** Where our tables stand; every statement of ours names it, so that no later change of the search_path sends it elsewhere. */
  readonly schema: string;
  /** The tables of the outbox are there. */
  readonly hasOutbox: boolean;
}

export interface SchemaQuestion {
  /** The option, else the DataSource's; undefined: the first schema of the search_path. */
  readonly schema: string | undefined;
  /** They must be there. Default: they are looked at if they are. */
  readonly needsOutbox?: boolean;
}

/** Of every application. */
const TABLES: readonly TableShape[] = [PROCESSED_EVENTS_SHAPE, PARKED_EVENTS_SHAPE, RUNNING_RECORDS_SHAPE];

/**
 * The start-up check: the server can keep the promise, our tables are there, have the shape this version relies on, and the current role may use them.
 * - Compares the catalog, so it does not matter who made the tables; reads only.
 * - Throws DATABASE_UNSUITABLE, SCHEMA_MISSING or SCHEMA_MISMATCH, with everything that is wrong and the remedy. Errors of the query itself go through.
 */
export async function checkSchema(
  query: CatalogQuery,
  { schema, needsOutbox = false }: SchemaQuestion,
): Promise<SchemaFacts> {
  const facts = await checkDatabase(query);
  const inUse = schema ?? facts.currentSchema;
  if (inUse === undefined) throw noSchema(facts);
  const place = { ...facts, schema: inUse };
  for (const table of TABLES) await checkTable(query, place, table);
  const hasOutbox = needsOutbox || (await catalogEntry(query, inUse, OUTBOX_MESSAGES_SHAPE.name))?.table !== undefined;
  if (hasOutbox) for (const table of OUTBOX_SHAPES) await checkTable(query, place, table);
  return { ...place, hasOutbox };
}

type Place = Omit<SchemaFacts, 'hasOutbox'>;

async function checkTable(query: CatalogQuery, facts: Place, expected: TableShape): Promise<void> {
  const name = qualifiedTable(facts.schema, expected.name);
  const entry = await catalogEntry(query, facts.schema, expected.name);
  if (entry?.table === undefined)
    throw missing(name, facts, expected, entry, await schemasWithTable(query, facts.schema, expected.name));
  const faults = tableFaults(expected, entry.table);
  const grants = missingGrants(name, facts, entry);
  if (faults.length > 0 || grants.length > 0) throw mismatch(name, facts, expected, faults, grants);
}

function noSchema({ searchPath }: DatabaseFacts): IdempotencyError {
  return new IdempotencyError(
    'SCHEMA_MISSING',
    `No schema of the search_path (${searchPath}) exists, so there is none to look for our tables in. ` +
      "Name it with the option `schema` or the DataSource's `schema`, or create it and give the role USAGE on it",
  );
}

function missing(
  name: string,
  facts: Place,
  expected: TableShape,
  entry: CatalogEntry | undefined,
  elsewhere: readonly string[],
): IdempotencyError {
  const what =
    entry === undefined
      ? `The schema "${facts.schema}" of the table ${name} does not exist`
      : `The table ${name} does not exist`;
  const others = elsewhere.map((schema) => `"${schema}"`).join(', ');
  return errorOf('SCHEMA_MISSING', [
    `${what} (${lookedIn(facts)})`,
    `Without it ${expected.without}`,
    ...(others === ''
      ? []
      : [`A table of that name stands in schema ${others}; if it is ours, name the schema with the option \`schema\``]),
    migrationRemedy(expected),
  ]);
}

function mismatch(
  name: string,
  facts: Place,
  expected: TableShape,
  faults: readonly string[],
  grants: readonly string[],
): IdempotencyError {
  return errorOf('SCHEMA_MISMATCH', [
    ...(faults.length === 0
      ? []
      : [
          `${name} is not the table this version needs (${lookedIn(facts)}): ${faults.join('; ')}`,
          `What a broken-off migration or another hand left there has to be put right or dropped first. ${migrationRemedy(expected)}`,
        ]),
    ...(grants.length === 0
      ? []
      : [`The role "${facts.role}" lacks privileges on ${name}. Run: ${grants.join('; ')};`]),
  ]);
}

function missingGrants(name: string, { schema, role }: Place, entry: CatalogEntry): string[] {
  const to = `TO "${role.replaceAll('"', '""')}"`;
  return [
    ...(entry.mayUseSchema ? [] : [`GRANT USAGE ON SCHEMA "${schema}" ${to}`]),
    ...(entry.missingPrivileges.length === 0 ? [] : [`GRANT ${entry.missingPrivileges.join(', ')} ON ${name} ${to}`]),
  ];
}

function errorOf(code: ErrorCode, sentences: readonly string[]): IdempotencyError {
  return new IdempotencyError(code, sentences.join('. '));
}

function lookedIn({ schema, searchPath }: Place): string {
  return `looked in schema "${schema}"; search_path is ${searchPath}`;
}

function migrationRemedy({ sqlFile }: TableShape): string {
  return (
    "Add idempotencyMigrations() of nestjs-kafka-idempotency/schema to the DataSource's `migrations` and run `typeorm migration:run`, " +
    `or run ${sqlFile} of the package in that schema`
  );
}
