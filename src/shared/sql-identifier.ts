import { IdempotencyError } from './errors.js';

/** What a schema or table of ours may be called. It becomes SQL text, so nothing that would need escaping is let in. */
const SQL_IDENTIFIER = /^[A-Za-z_][A-Za-z0-9_]{0,62}$/;

export function isSqlIdentifier(name: unknown): name is string {
  return typeof name === 'string' && SQL_IDENTIFIER.test(name);
}

/** `"schema"."table"`, or `"table"` when no schema is given and the search_path is to decide. Throws OPTIONS_INVALID for anything but plain identifiers. */
export function qualifiedTable(schema: string | undefined, table: string): string {
  return schema === undefined ? quoted(table) : `${quoted(schema)}.${quoted(table)}`;
}

function quoted(name: string): string {
  if (!isSqlIdentifier(name)) {
    throw new IdempotencyError(
      'OPTIONS_INVALID',
      `The schema or table name ${JSON.stringify(name)} is not a plain SQL identifier. It becomes part of SQL text, so only a letter or _ ` +
        'followed by up to 62 letters, digits or _ is accepted. Choose such a name',
    );
  }
  return `"${name}"`;
}
