/** A row that some service has written for an order. */
export interface Line {
  readonly orderId: string;
  readonly cents: number;
}

export interface Sum {
  readonly rows: number;
  readonly cents: number;
  /** Orders without a row. */
  readonly missing: readonly string[];
  /** Of rows beyond the first of an order, rows of nobody's order, and rows of another amount. */
  readonly wrong: readonly string[];
}

/** What was written, against the orders that were taken: cents by order id. Pure. */
export function sumOf(taken: ReadonlyMap<string, number>, lines: readonly Line[]): Sum {
  const seen = new Set<string>();
  const wrong: string[] = [];
  for (const { orderId, cents } of lines) {
    if (seen.has(orderId) || taken.get(orderId) !== cents) wrong.push(orderId);
    seen.add(orderId);
  }
  const missing = [...taken.keys()].filter((orderId) => !seen.has(orderId));
  return { rows: lines.length, cents: centsOf(lines.map(({ cents }) => cents)), missing, wrong };
}

export function centsOf(amounts: Iterable<number>): number {
  return [...amounts].reduce((sum, cents) => sum + cents, 0);
}
