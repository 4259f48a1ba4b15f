import { count } from '../../demo/report.js';
import type { Sum } from './sums.js';

/** What a run ends with; the same names in `--json`. */
export interface ChoreographyResult {
  /** Orders the shop has answered for, and what they are worth. */
  readonly taken: number;
  readonly cents: number;
  /** Requests beyond the first of an order. */
  readonly repeated: number;
  readonly orders: Sum;
  readonly payments: Sum;
  readonly shipments: Sum;
  /** As often as the shop was told of a shipment. */
  readonly shipped: Sum;
  /** In the three topics. */
  readonly records: number;
  readonly kills: { readonly shop: number; readonly warehouse: number };
  /** Events that had been handled before, as far as killed services could tell. */
  readonly skipped: number;
}

const LISTS = ['orders', 'payments', 'shipments', 'shipped'] as const;

/** Every list has each order once, with its amount. */
export function isExact(result: ChoreographyResult): boolean {
  return LISTS.every((list) => result[list].missing.length + result[list].wrong.length === 0);
}

export function tableOf(result: ChoreographyResult): string {
  const { taken, cents, repeated, records, kills, skipped } = result;
  const lines: [string, string, string, string][] = [
    ['', 'number', 'amount', ''],
    ['ordered', count(taken), money(cents), `answered by the shop; ${count(repeated)} more requests repeated an order`],
    ['orders', ...sums(result.orders), "rows in the shop's database"],
    ['payments', ...sums(result.payments), "rows in the shop's database"],
    ['shipments', ...sums(result.shipments), "rows in the warehouse's database"],
    ['shipped', ...sums(result.shipped), 'as often as the shop was told of a shipment'],
    ['', '', '', ''],
    [
      'kills',
      count(kills.shop + kills.warehouse),
      '',
      `SIGKILLs: ${kills.shop} of the shop, ${kills.warehouse} of the warehouse`,
    ],
    [
      'records',
      count(records),
      '',
      `in three topics: ${count(records - 3 * taken)} of them copies that a relay sent again under the same id`,
    ],
    [
      'skipped',
      count(skipped),
      '',
      'redeliveries and copies that changed nothing, as far as killed services could tell',
    ],
  ];
  const width = (column: 0 | 1 | 2) => Math.max(...lines.map((line) => line[column].length));
  return lines
    .map(([name, rows, amount, meaning]) =>
      `  ${name.padEnd(width(0))}  ${rows.padStart(width(1))}  ${amount.padStart(width(2))}   ${meaning}`.trimEnd(),
    )
    .join('\n');
}

export function verdictOf(result: ChoreographyResult): string {
  if (isExact(result)) return 'Each order has exactly one payment and one shipment, of its amount.';
  const told = LISTS.flatMap((list) => {
    const { missing, wrong } = result[list];
    return missing.length + wrong.length === 0
      ? []
      : [`${list}: ${count(missing.length)} missing, ${count(wrong.length)} too many or of another amount`];
  });
  return `NOT exactly once. ${told.join('. ')}.`;
}

export function jsonOf({ taken, cents, repeated, records, kills, skipped, ...lists }: ChoreographyResult): string {
  const sums = LISTS.map((list) => {
    const { rows, cents: amount, missing, wrong } = lists[list];
    return [list, { rows, cents: amount, missing: missing.length, wrong: wrong.length }];
  });
  return JSON.stringify({ taken, cents, repeated, ...Object.fromEntries(sums), records, kills, skipped });
}

function sums({ rows, cents }: Sum): [string, string] {
  return [count(rows), money(cents)];
}

function money(cents: number): string {
  return (cents / 100).toLocaleString('en-US', { minimumFractionDigits: 2 });
}
