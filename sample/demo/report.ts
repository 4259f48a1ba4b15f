/** What a run ends with; the same names in `--json`. */
export interface DemoResult {
  /** Different ids that Kafka acknowledged. */
  readonly sent: number;
  /** Records beyond the first of an id. */
  readonly duplicates: number;
  /** Rows of the handler's table. */
  readonly applied: number;
  /** Ids without a row. */
  readonly lost: number;
  /** Rows beyond the first of an id. */
  readonly doubled: number;
  /** Rows applied after a later one of their key. */
  readonly outOfOrder: number;
  /** SIGKILLs that hit a running worker. */
  readonly kills: number;
  /** Claims that found a row, sent duplicates included, as far as killed workers could report. */
  readonly skipped: number;
  /** Rows per second, from the first send to the last row. */
  readonly perSecond: number;
}

export function isExact({ lost, doubled, outOfOrder }: DemoResult): boolean {
  return lost === 0 && doubled === 0 && outOfOrder === 0;
}

export function jsonOf(result: DemoResult): string {
  const { sent, duplicates, applied, lost, doubled, outOfOrder, kills, skipped, perSecond } = result;
  return JSON.stringify({ sent, duplicates, applied, lost, doubled, outOfOrder, kills, skipped, perSecond });
}

export function tableOf(result: DemoResult): string {
  const rows: [string, string, string][] = [
    ['sent', count(result.sent), 'events that Kafka acknowledged, each with an id of its own'],
    ['duplicates sent', count(result.duplicates), 'further records under an id already sent'],
    ['applied', count(result.applied), "rows in the handler's table, which has no unique constraint"],
    ['lost', count(result.lost), 'events without a row'],
    ['doubled', count(result.doubled), 'rows beyond the first of an event'],
    ['out of order', count(result.outOfOrder), 'rows written after a later event of the same key'],
    ['kills', count(result.kills), 'SIGKILLs that hit a running worker'],
    ['redelivered and skipped', count(result.skipped), 'duplicates and redeliveries that changed nothing'],
    ['msg/s', result.perSecond.toFixed(1), 'applied from the first send to the last row; the sending is paced'],
  ];
  const widest = [0, 1].map((column) => Math.max(...rows.map((row) => (row[column] as string).length)));
  return rows
    .map(([name, value, meaning]) => `  ${name.padEnd(widest[0] ?? 0)}  ${value.padStart(widest[1] ?? 0)}   ${meaning}`)
    .join('\n');
}

export function verdictOf(result: DemoResult): string {
  if (isExact(result)) return 'Each event changed the database exactly once, in the order of its key.';
  const { lost, doubled, outOfOrder } = result;
  return `NOT exactly once: ${count(lost)} lost, ${count(doubled)} doubled, ${count(outOfOrder)} out of order.`;
}

/** 12345 as 12,345, in every locale. */
export function count(value: number): string {
  return value.toLocaleString('en-US');
}
