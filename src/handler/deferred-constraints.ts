import { sqlState } from '../shared/sql-state.js';

/** Where unqualified names lead to, and where entities stand: naming what other people's schemas hold would cost each record. */
const DEFERRABLE = `SELECT format('%I.%I', n.nspname, c.conname) AS name, c.condeferred AS deferred FROM pg_constraint c JOIN pg_namespace n ON n.oid = c.connamespace
WHERE c.condeferrable AND (n.nspname = ANY (current_schemas(false)) OR n.nspname = ANY ($1::text[])) AND has_schema_privilege(n.oid, 'USAGE') ORDER BY 1`;

/** Undefined object, invalid schema name, wrong object type (no longer deferrable), insufficient privilege. */
const GONE: readonly (string | undefined)[] = ['42704', '3F000', '42809', '42501'];

/**
 * What to send behind each record of a shared transaction, so that a deferred constraint is blamed on the record that violates it: checks all now, and sets those
 * that are initially deferred back, for the immediate mode would hold for the later records. Undefined where no constraint is deferrable. `schemas`: looked at
 * besides those of the search_path. One in yet another schema stays immediate: what needs it deferred runs alone then.
 */
export async function constraintCheck(
  query: (sql: string, values: unknown[]) => Promise<unknown>,
  schemas: readonly string[],
): Promise<string | undefined> {
  const found = (await query(DEFERRABLE, [schemas])) as { name: string; deferred: boolean }[];
  if (found.length === 0) return undefined;
  const deferred = new Set(found.filter((constraint) => constraint.deferred).map(({ name }) => name));
  const check = 'SET CONSTRAINTS ALL IMMEDIATE';
  return deferred.size === 0 ? check : `${check}; SET CONSTRAINTS ${[...deferred].join(', ')} DEFERRED`;
}

/** The check names a constraint that has gone since it was made. */
export function isOutdated(error: unknown): boolean {
  return GONE.includes(sqlState(error));
}
