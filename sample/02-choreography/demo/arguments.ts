import { parseArgs } from 'node:util';

export const USAGE = `Usage: npm run demo:choreography -- [--orders N] [--json]

Customers order over HTTP; the shop takes the payment, the warehouse ships, and the shop hears of it. Both services are killed at random all the time and
started again. Afterwards both databases are asked whether each order has exactly one payment and one shipment.

  --orders N   orders, 10 to 100000 (default 1000). The flow is paced to last 25 s or more
  --json       print the result as one JSON object, the last line of standard output; all else goes to standard error
  --help       print this

KAFKA_BROKERS and DATABASE_URL name the services to use; without them they are started, and stopped afterwards.
Exit status: 0 when all sums are equal, 1 when they are not, or the run failed, 2 for wrong arguments.`;

export type ReadArguments =
  | { readonly kind: 'run'; readonly orders: number; readonly json: boolean }
  | { readonly kind: 'help' }
  | { readonly kind: 'wrong'; readonly message: string };

/** Reads the command line, without the program's own name. Pure. */
export function readArguments(args: readonly string[]): ReadArguments {
  try {
    const { orders, json, help } = parseArgs({
      args: [...args],
      options: {
        orders: { type: 'string', default: '1000' },
        json: { type: 'boolean', default: false },
        help: { type: 'boolean', short: 'h', default: false },
      },
    }).values;
    if (help) return { kind: 'help' };
    const wanted = /^\d{1,6}$/.test(orders) ? Number(orders) : NaN;
    if (!(wanted >= 10 && wanted <= 100_000))
      throw new Error(`--orders is '${orders}', but it has to be a whole number from 10 to 100000`);
    return { kind: 'run', orders: wanted, json };
  } catch (error) {
    return { kind: 'wrong', message: `${(error as Error).message.split('\n')[0]}\n\n${USAGE}` };
  }
}
