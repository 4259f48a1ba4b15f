import { PROCESSED_EVENTS, PROCESSED_EVENTS_COMMENT } from './processed-events.js';

export interface ColumnShape {
  readonly name: string;
  /** As `format_type` writes it. */
  readonly type: string;
  readonly collation: string | null;
  readonly notNull: boolean;
  /** As `pg_get_expr` writes it; for a generated column its expression. */
  readonly default: string | null;
}

export interface IndexShape {
  readonly name: string;
  readonly method: string;
  readonly columns: readonly string[];
}

/** What the code of this version relies on in a table. */
export interface TableShape {
  readonly name: string;
  readonly comment: string;
  readonly columns: readonly ColumnShape[];
  readonly primaryKey: readonly string[];
  readonly indexes: readonly IndexShape[];
  readonly sqlFile: string;
}

/** A table as the catalog has it. */
export interface CatalogTable {
  readonly kind: string;
  readonly persistence: string;
  readonly comment: string | null;
  /** BEFORE INSERT row triggers of the application. */
  readonly triggers: readonly string[];
  readonly columns: readonly (ColumnShape & { readonly filledIn: boolean })[];
  readonly indexes: readonly CatalogIndex[];
}

export interface CatalogIndex extends IndexShape {
  readonly primary: boolean;
  /** Unique or exclusion. */
  readonly exclusive: boolean;
  /** Built to its end, and checked at each statement. */
  readonly usable: boolean;
}

const text = { type: 'text', collation: 'C', notNull: true, default: null } as const;
const bigint = { type: 'bigint', collation: null, notNull: true, default: null } as const;

export const PROCESSED_EVENTS_SHAPE: TableShape = {
  name: PROCESSED_EVENTS,
  comment: PROCESSED_EVENTS_COMMENT,
  columns: [
    { name: 'processed_at', type: 'timestamp with time zone', collation: null, notNull: true, default: 'now()' },
    { ...bigint, name: 'record_offset' },
    { ...bigint, name: 'fingerprint' },
    { ...bigint, name: 'partition', type: 'integer' },
    { ...text, name: 'consumer' },
    { ...text, name: 'event_id' },
    { ...text, name: 'topic' },
  ],
  primaryKey: ['consumer', 'event_id'],
  indexes: [{ name: 'processed_events_processed_at', method: 'brin', columns: ['processed_at'] }],
  sqlFile: 'sql/0001-processed-events.sql',
};

const KINDS: Readonly<Record<string, string>> = {
  v: 'a view',
  m: 'a materialized view',
  f: 'a foreign table',
  p: 'a partitioned table',
  S: 'a sequence',
  i: 'an index',
  I: 'an index',
  c: 'a type',
};

/** Everything in which a table differs from what the code relies on; empty when it fits. More columns and plain indexes are the user's business. */
export function tableFaults(expected: TableShape, found: CatalogTable): string[] {
  if (found.kind !== 'r') return [`it is ${KINDS[found.kind] ?? 'no table'}, not a table`];
  return [
    ...commentFaults(expected, found.comment),
    ...(found.persistence === 'p'
      ? []
      : ['it is not a permanent table: a crash of the server would empty it, and every event would be applied again']),
    ...expected.columns.flatMap((column) =>
      columnFaults(
        column,
        found.columns.find(({ name }) => name === column.name),
      ),
    ),
    ...extraColumnFaults(expected, found),
    ...primaryKeyFaults(expected, found.indexes),
    ...expected.indexes.flatMap((index) => indexFaults(index, found.indexes)),
    ...claimFaults(found),
  ];
}

function commentFaults(expected: TableShape, comment: string | null): string[] {
  if (comment === expected.comment) return [];
  if (comment === null)
    return [`its comment '${expected.comment}' is missing: the migration was broken off, or the table is not ours`];
  return [
    `its comment is '${comment.slice(0, 80)}', not '${expected.comment}': it was made by another version of this package, or is not ours`,
  ];
}

function columnFaults(expected: ColumnShape, found: ColumnShape | undefined): string[] {
  const column = `column ${expected.name}`;
  if (found === undefined) return [`${column} is missing`];
  const faults: string[] = [];
  if (found.type !== expected.type) faults.push(`${column} is of type ${found.type}, not ${expected.type}`);
  else if (found.collation !== expected.collation)
    faults.push(`${column} has collation "${found.collation}", not "${expected.collation}"`);
  if (found.notNull !== expected.notNull) faults.push(`${column} can be null`);
  if (found.default !== expected.default)
    faults.push(`${column} has default ${found.default ?? 'none'}, not ${expected.default ?? 'none'}`);
  return faults;
}

function extraColumnFaults(expected: TableShape, found: CatalogTable): string[] {
  return found.columns
    .filter(
      ({ name, notNull, filledIn }) => notNull && !filledIn && !expected.columns.some((column) => column.name === name),
    )
    .map(({ name }) => `the added column ${name} is NOT NULL without a default, so no row of ours could be written`);
}

function primaryKeyFaults(expected: TableShape, indexes: readonly CatalogIndex[]): string[] {
  const key = indexes.find(({ primary }) => primary);
  const wanted = `(${expected.primaryKey.join(', ')})`;
  if (key === undefined) return [`its primary key ${wanted} is missing`];
  if (!sameList(key.columns, expected.primaryKey))
    return [`its primary key is (${key.columns.join(', ')}), not ${wanted}`];
  return key.usable ? [] : ['its primary key is deferrable or invalid, so ON CONFLICT does not see it'];
}

function indexFaults(expected: IndexShape, indexes: readonly CatalogIndex[]): string[] {
  const index = `index ${expected.name}`;
  const found = indexes.find(({ name }) => name === expected.name);
  const wanted = `${expected.method} (${expected.columns.join(', ')})`;
  if (found === undefined) return [`${index} using ${wanted} is missing`];
  const fits = found.method === expected.method && sameList(found.columns, expected.columns);
  return fits ? [] : [`${index} is ${found.method} (${found.columns.join(', ')}), not ${wanted}`];
}

/** What would make ON CONFLICT DO NOTHING skip a row that is no duplicate: the event would be taken for handled and be lost. */
function claimFaults(found: CatalogTable): string[] {
  return [
    ...found.indexes
      .filter(({ primary, exclusive }) => exclusive && !primary)
      .map(
        ({ name, columns }) =>
          `the added unique or exclusion index ${name} (${columns.join(', ')}) would make new events look like duplicates, and they would be lost`,
      ),
    ...found.triggers.map(
      (name) => `the BEFORE INSERT trigger ${name} could make new events look like duplicates, and they would be lost`,
    ),
  ];
}

function sameList(one: readonly string[], other: readonly string[]): boolean {
  return one.length === other.length && one.every((item, index) => item === other[index]);
}
