import { parseArgs } from 'node:util';

export interface DemoArguments {
  /** How many different events are sent. */
  readonly events: number;
  /** End with one JSON object on standard output instead of the table. */
  readonly json: boolean;
}

export type ReadArguments =
  | { readonly kind: 'run'; readonly options: DemoArguments }
  | { readonly kind: 'help' }
  | { readonly kind: 'wrong'; readonly message: string };

const DEFAULT_EVENTS = 5_000;
const MOST_EVENTS = 1_000_000;

export const USAGE = `Usage: npm run demo -- [--events N] [--json]

Sends events to Kafka, every fifth of them twice, and lets three processes of the sample handle them into PostgreSQL. One of them is
killed about every second, one is stopped in between. Afterwards the database is asked whether each event changed it exactly once.

  --events N   different events to send, 1 to ${MOST_EVENTS} (default ${DEFAULT_EVENTS}). The flow is paced to last 20 s or more
  --json       print the result as one JSON object, the last line of standard output; all else goes to standard error
  --help       print this

KAFKA_BROKERS and DATABASE_URL name the services to use; without them they are started, and stopped afterwards.
Exit status: 0 when nothing was lost, doubled or out of order, 1 when anything was, or the run failed, 2 for wrong arguments.`;

/** Reads the command line, without the program's own name. Pure. */
export function readArguments(args: readonly string[]): ReadArguments {
  const parsed = parse(args);
  if ('fault' in parsed) return wrong(parsed.fault);
  const { events, json, help } = parsed.values;
  if (help === true) return { kind: 'help' };
  const count = events === undefined ? DEFAULT_EVENTS : wholeNumber(events);
  if (count === undefined || count < 1 || count > MOST_EVENTS) {
    return wrong(`--events is ${JSON.stringify(events)}, but it has to be a whole number from 1 to ${MOST_EVENTS}`);
  }
  return { kind: 'run', options: { events: count, json: json === true } };
}

interface Values {
  readonly events?: string | undefined;
  readonly json?: boolean | undefined;
  readonly help?: boolean | undefined;
}

function parse(args: readonly string[]): { readonly values: Values } | { readonly fault: string } {
  try {
    return parseArgs({
      args: [...args],
      options: { events: { type: 'string' }, json: { type: 'boolean' }, help: { type: 'boolean', short: 'h' } },
    });
  } catch (error) {
    if (!isAboutArguments(error)) throw error;
    return { fault: error.message.split('\n')[0] as string };
  }
}

function isAboutArguments(error: unknown): error is Error {
  return error instanceof TypeError && 'code' in error && String(error.code).startsWith('ERR_PARSE_ARGS');
}

function wholeNumber(text: string): number | undefined {
  return /^\d{1,15}$/.test(text) ? Number(text) : undefined;
}

function wrong(fault: string): ReadArguments {
  return { kind: 'wrong', message: `${fault.replace(/\.$/, '')}. For example: npm run demo -- --events 500 --json` };
}
