import type { DataSource } from 'typeorm';

/** A table as PostgreSQL describes it, read apart from the guard's own queries. */
export interface CatalogDescription {
  readonly columns: readonly string[];
  readonly constraints: readonly string[];
  readonly indexes: readonly string[];
  readonly comment: string | null;
}

/** Schema names are taken out, so that tables of two schemas can be compared. */
export async function catalogOf(dataSource: DataSource, schema: string, table: string): Promise<CatalogDescription> {
  const plain = (texts: string[]) => texts.map((text) => text.replaceAll(`${schema}.`, ''));
  const list = async (sql: string): Promise<string[]> =>
    plain(((await dataSource.query(sql, [`"${schema}"."${table}"`])) as { text: string }[]).map(({ text }) => text));
  const [comment] = (await dataSource.query(`SELECT obj_description($1::regclass, 'pg_class') AS comment`, [
    `"${schema}"."${table}"`,
  ])) as {
    comment: string | null;
  }[];
  return {
    columns: await list(
      `SELECT concat_ws(' ', attname, format_type(atttypid, atttypmod), 'COLLATE "' || NULLIF(collname, 'default') || '"',
         CASE WHEN attnotnull THEN 'NOT NULL' END, 'DEFAULT ' || pg_get_expr(adbin, adrelid)) AS text
       FROM pg_attribute LEFT JOIN pg_collation c ON c.oid = attcollation LEFT JOIN pg_attrdef ON adrelid = attrelid AND adnum = attnum
       WHERE attrelid = $1::regclass AND attnum > 0 ORDER BY attnum`,
    ),
    constraints: await list(
      `SELECT conname || ': ' || pg_get_constraintdef(oid) AS text FROM pg_constraint WHERE conrelid = $1::regclass AND contype <> 'n' ORDER BY 1`,
    ),
    indexes: await list(
      `SELECT pg_get_indexdef(indexrelid) AS text FROM pg_index WHERE indrelid = $1::regclass ORDER BY 1`,
    ),
    comment: comment!.comment,
  };
}

export async function tablesIn(dataSource: DataSource, schema: string): Promise<string[]> {
  const rows = (await dataSource.query(
    `SELECT c.relname AS name FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace WHERE n.nspname = $1 AND c.relkind IN ('r', 'v') ORDER BY 1`,
    [schema],
  )) as { name: string }[];
  return rows.map(({ name }) => name);
}
