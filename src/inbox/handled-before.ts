/** Rows looked at for each consumer: with ids that ascend in time the newest ones, else any. */
const ROWS = 100;

/** `$1`: consumers, `$2`: topics. Reads the end of each consumer's part of the primary key, however long the table is. */
export function handledBeforeStatement(table: string): string {
  return `SELECT DISTINCT claim.topic FROM unnest($1::text[]) AS asked (consumer)
CROSS JOIN LATERAL (SELECT topic FROM ${table} WHERE consumer = asked.consumer COLLATE "C" ORDER BY event_id DESC LIMIT ${ROWS}) AS claim
WHERE claim.topic = ANY ($2::text[])`;
}
