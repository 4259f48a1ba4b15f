/** `$1`: consumer, `$2`: event ids. The ids of those that it has handled, each found by the primary key. */
export function handledEventsStatement(table: string): string {
  return `SELECT event_id FROM ${table} WHERE consumer = $1 AND event_id = ANY ($2::text[])`;
}
