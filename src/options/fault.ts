import { IdempotencyError } from '../shared/errors.js';

/** One thing wrong with the options. Read as a sentence: `path problem. remedy` */
export interface Fault {
  readonly path: string;
  readonly problem: string;
  readonly remedy: string;
}

/** All faults of one options object in one error. `where` is the call the user wrote. */
export function optionsInvalid(where: string, faults: readonly Fault[]): IdempotencyError {
  const lines = faults.map((fault) => `  - ${fault.path} ${fault.problem}. ${fault.remedy}`);
  const count = faults.length === 1 ? '1 fault' : `${String(faults.length)} faults`;
  return new IdempotencyError(
    'OPTIONS_INVALID',
    `${where}: ${count} in the options.\n${lines.join('\n')}\nNothing was started.`,
  );
}

const SECRET_PATH = /^kafka\.client\.(sasl|ssl)\b/;
const MAYBE_SECRET = /@|passw|secret|token/i;
const SHOWN_LENGTH = 60;

/** The value got, short enough for a line. Never what stands inside an object, under `sasl` or `ssl`, or looks like credentials. */
export function show(path: string, value: unknown): string {
  if (SECRET_PATH.test(path)) return kindOf(value);
  if (typeof value === 'string') return showText(value);
  if (typeof value === 'number' || typeof value === 'boolean' || typeof value === 'bigint') return String(value);
  return kindOf(value);
}

function showText(text: string): string {
  if (MAYBE_SECRET.test(text)) return 'a string (not shown: it may hold credentials)';
  const cut = text.length > SHOWN_LENGTH ? `${text.slice(0, SHOWN_LENGTH)}…` : text;
  return `'${JSON.stringify(cut).slice(1, -1)}'`;
}

function kindOf(value: unknown): string {
  if (value === undefined || value === null) return String(value);
  if (Array.isArray(value)) return value.length === 0 ? 'an empty array' : `an array of ${String(value.length)}`;
  if (value instanceof Promise) return 'a Promise (await it in useFactory of forRootAsync)';
  return typeof value === 'object' ? 'an object' : `a ${typeof value}`;
}
