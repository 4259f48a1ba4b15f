export interface ColumnShape {
  readonly name: string;
  /** As `format_type` writes it. */
  readonly type: string;
  readonly collation: string | null;
  readonly notNull: boolean;
  /** As `pg_get_expr` writes it; for a generated column its expression, for an identity column `identity`. */
  readonly default: string | null;
}

export interface IndexShape {
  readonly name: string;
  readonly method: string;
  readonly columns: readonly string[];
  /** Of a partial index, as `pg_get_expr` writes it. */
  readonly where: string | null;
}

/** A constraint as `pg_get_constraintdef` writes it. */
export interface CheckShape {
  readonly name: string;
  readonly definition: string;
}

/** What the code of this version relies on in a table. */
export interface TableShape {
  readonly name: string;
  readonly comment: string;
  readonly columns: readonly ColumnShape[];
  readonly primaryKey: readonly string[];
  /** The columns by which ON CONFLICT knows a row, when that is not the primary key. */
  readonly unique?: readonly string[];
  readonly indexes: readonly IndexShape[];
  readonly checks: readonly CheckShape[];
  readonly sqlFile: string;
  /** "Without it …" */
  readonly without: string;
  /** What comes of an insert that something makes ON CONFLICT skip although its row is new. */
  readonly skipped: string;
  /** What comes of it when a crash of the server empties it. */
  readonly emptied: string;
}

/** A column that cannot be null and has neither collation nor default, but for what is said. */
export function column(name: string, type: string, rest: Partial<ColumnShape> = {}): ColumnShape {
  return { name, type, collation: null, notNull: true, default: null, ...rest };
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
  readonly checks: readonly CheckShape[];
}

export interface CatalogIndex extends IndexShape {
  readonly primary: boolean;
  /** Unique or exclusion. */
  readonly exclusive: boolean;
  /** Built to its end, and checked at each statement. */
  readonly usable: boolean;
}

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
      : [`it is not a permanent table: a crash of the server would empty it, and ${expected.emptied}`]),
    ...expected.columns.flatMap((column) =>
      columnFaults(
        column,
        found.columns.find(({ name }) => name === column.name),
      ),
    ),
    ...extraColumnFaults(expected, found),
    ...primaryKeyFaults(expected, found.indexes),
    ...(expected.unique === undefined || found.indexes.some((index) => isConflictTarget(expected, index))
      ? []
      : [`its unique constraint (${expected.unique.join(', ')}) is missing, deferrable or invalid`]),
    ...expected.indexes.flatMap((index) => indexFaults(index, found.indexes)),
    ...expected.checks.flatMap((check) => checkFaults(check, found.checks)),
    ...conflictFaults(expected, found),
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
  if (found.notNull !== expected.notNull) faults.push(`${column} ${expected.notNull ? 'can' : 'cannot'} be null`);
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

function isConflictTarget(expected: TableShape, index: CatalogIndex): boolean {
  return (
    expected.unique !== undefined &&
    index.exclusive &&
    index.usable &&
    index.where === null &&
    sameList(index.columns, expected.unique)
  );
}

function indexFaults(expected: IndexShape, indexes: readonly CatalogIndex[]): string[] {
  const found = indexes.find(({ name }) => name === expected.name);
  if (found === undefined) return [`index ${expected.name} using ${described(expected)} is missing`];
  const fits = described(found) === described(expected);
  return fits ? [] : [`index ${expected.name} is ${described(found)}, not ${described(expected)}`];
}

function described({ method, columns, where }: IndexShape): string {
  return `${method} (${columns.join(', ')})${where === null ? '' : ` where ${where}`}`;
}

function checkFaults(expected: CheckShape, checks: readonly CheckShape[]): string[] {
  const found = checks.find(({ name }) => name === expected.name);
  if (found === undefined) return [`its constraint ${expected.name} is missing`];
  return found.definition === expected.definition
    ? []
    : [`its constraint ${expected.name} is ${found.definition}, not ${expected.definition}`];
}

/** What would make ON CONFLICT skip a row that is new, or a trigger leave it out. */
function conflictFaults(expected: TableShape, found: CatalogTable): string[] {
  return [
    ...found.indexes
      .filter((index) => index.exclusive && !index.primary && !isConflictTarget(expected, index))
      .map(
        ({ name, columns }) =>
          `the added unique or exclusion index ${name} (${columns.join(', ')}) would ${expected.skipped}`,
      ),
    ...found.triggers.map((name) => `the BEFORE INSERT trigger ${name} could ${expected.skipped}`),
  ];
}

function sameList(one: readonly string[], other: readonly string[]): boolean {
  return one.length === other.length && one.every((item, index) => item === other[index]);
}
