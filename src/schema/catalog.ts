import type { CatalogIndex, CatalogTable, CheckShape, ColumnShape } from './table-shape.js';

/** How the guard reads: `(sql, parameters) => dataSource.query(sql, parameters)`. */
export type CatalogQuery = (sql: string, parameters: unknown[]) => Promise<unknown[]>;

/** What stands under a name in a schema. `undefined` for the schema or the relation when there is none. */
export interface CatalogEntry {
  readonly table: CatalogTable | undefined;
  readonly mayUseSchema: boolean;
  /** Of SELECT, INSERT, UPDATE, DELETE, those the current role lacks. */
  readonly missingPrivileges: readonly string[];
}

type RelationRow = Omit<CatalogTable, 'columns' | 'indexes' | 'checks'> &
  Omit<CatalogEntry, 'table'> & { readonly oid: string | null };

const RELATION = `
SELECT c.oid::text AS oid, c.relkind::text AS kind, c.relpersistence::text AS persistence, obj_description(c.oid, 'pg_class') AS comment,
  ARRAY(SELECT t.tgname::text FROM pg_trigger t WHERE t.tgrelid = c.oid AND NOT t.tgisinternal AND t.tgenabled <> 'D' AND t.tgtype & 7 = 7 ORDER BY 1) AS triggers,
  has_schema_privilege(n.oid, 'USAGE') AS "mayUseSchema",
  ARRAY(SELECT p FROM unnest(ARRAY['SELECT', 'INSERT', 'UPDATE', 'DELETE']) p WHERE NOT has_table_privilege(c.oid, p)) AS "missingPrivileges"
FROM pg_namespace n LEFT JOIN pg_class c ON c.relnamespace = n.oid AND c.relname = $2
WHERE n.nspname = $1`;

const COLUMNS = `
SELECT a.attname::text AS name, format_type(a.atttypid, a.atttypmod) AS type, co.collname::text AS collation, a.attnotnull AS "notNull",
  CASE WHEN a.attidentity <> '' THEN 'identity' ELSE pg_get_expr(d.adbin, d.adrelid) END AS "default", d.adbin IS NOT NULL OR a.attidentity <> '' AS "filledIn"
FROM pg_attribute a
  LEFT JOIN pg_attrdef d ON d.adrelid = a.attrelid AND d.adnum = a.attnum
  LEFT JOIN pg_collation co ON co.oid = a.attcollation
WHERE a.attrelid = $1::oid AND a.attnum > 0 AND NOT a.attisdropped
ORDER BY a.attnum`;

const INDEXES = `
SELECT i.relname::text AS name, m.amname::text AS method, x.indisprimary AS "primary", x.indisunique OR x.indisexclusion AS exclusive,
  x.indisvalid AND x.indimmediate AS usable, pg_get_expr(x.indpred, x.indrelid) AS "where",
  ARRAY(SELECT COALESCE(a.attname::text, '<expression>') FROM unnest(x.indkey) WITH ORDINALITY k (number, place)
    LEFT JOIN pg_attribute a ON a.attrelid = x.indrelid AND a.attnum = k.number WHERE k.place <= x.indnkeyatts ORDER BY k.place) AS columns
FROM pg_index x JOIN pg_class i ON i.oid = x.indexrelid JOIN pg_am m ON m.oid = i.relam
WHERE x.indrelid = $1::oid
ORDER BY i.relname`;

const CHECKS = `
SELECT conname::text AS name, pg_get_constraintdef(oid) AS definition FROM pg_constraint WHERE conrelid = $1::oid AND contype = 'c' ORDER BY 1`;

const ELSEWHERE = `
SELECT n.nspname::text AS schema FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE c.relname = $2 AND c.relkind = 'r' AND n.nspname <> $1 AND n.nspname !~ '^pg_'
ORDER BY 1`;

/** What the catalog has under that name; undefined when the schema does not exist. The catalog can be read without any privilege on the table. */
export async function catalogEntry(
  query: CatalogQuery,
  schema: string,
  name: string,
): Promise<CatalogEntry | undefined> {
  const [relation] = (await query(RELATION, [schema, name])) as RelationRow[];
  if (relation === undefined) return undefined;
  const { oid, mayUseSchema, missingPrivileges, ...facts } = relation;
  if (oid === null) return { table: undefined, mayUseSchema, missingPrivileges: [] };
  const columns = (await query(COLUMNS, [oid])) as (ColumnShape & { filledIn: boolean })[];
  const indexes = (await query(INDEXES, [oid])) as CatalogIndex[];
  const checks = (await query(CHECKS, [oid])) as CheckShape[];
  return { table: { ...facts, columns, indexes, checks }, mayUseSchema, missingPrivileges };
}

/** The other schemas in which a table of that name stands: the usual reason for a missing one is a search_path. */
export async function schemasWithTable(query: CatalogQuery, except: string, name: string): Promise<string[]> {
  const rows = (await query(ELSEWHERE, [except, name])) as { schema: string }[];
  return rows.map(({ schema }) => schema);
}
