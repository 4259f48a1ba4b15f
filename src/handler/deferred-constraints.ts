const DEFERRABLE = `SELECT format('%I.%I', n.nspname, c.conname) AS name, c.condeferred AS deferred FROM pg_constraint c JOIN pg_namespace n ON n.oid = c.connamespace
WHERE c.condeferrable AND has_schema_privilege(n.oid, 'USAGE') ORDER BY 1`;

/**
 * What to send behind each record of a shared transaction, so that a deferred constraint is blamed on the record that violates it: checks all now, and sets those
 * that are initially deferred back, for the immediate mode would hold for the later records. Undefined where no constraint is deferrable.
 */
export async function constraintCheck(query: (sql: string) => Promise<unknown>): Promise<string | undefined> {
  const found = (await query(DEFERRABLE)) as { name: string; deferred: boolean }[];
  if (found.length === 0) return undefined;
  const deferred = new Set(found.filter((constraint) => constraint.deferred).map(({ name }) => name));
  const check = 'SET CONSTRAINTS ALL IMMEDIATE';
  return deferred.size === 0 ? check : `${check}; SET CONSTRAINTS ${[...deferred].join(', ')} DEFERRED`;
}
