import { IdempotencyError } from '../../shared/errors.js';
import type { IdSource, RecordView } from '../../shared/record.js';
import { admittedText, invalidId } from './id-text.js';

/** Marks the sources of this package (also another copy of it) and says what they look for. */
const LOOKS_FOR = Symbol.for('nestjs-kafka-idempotency:id-source');

type MarkedSource = IdSource & { readonly [LOOKS_FOR]?: string };

/** A source of ours: `read` admits what comes from outside itself, so that its own forms (`hex:…`, `sha256:…`) can be trusted by {@link idFrom}. */
export function builtInSource(looksFor: string, read: IdSource): IdSource {
  return Object.defineProperty((record: RecordView) => read(record), LOOKS_FOR, { value: looksFor });
}

/** What a source looks for, to complete "looked for …". */
export function looksFor(source: IdSource): string {
  return (
    (source as MarkedSource)[LOOKS_FOR] ??
    (source.name === '' ? 'what a function of yours finds' : `what the function ${source.name} finds`)
  );
}

/** The id or part a source gives. What a user's function returns is checked here, wherever it stands: alone, in `firstOf` or in `join`. */
export function idFrom(source: IdSource, record: RecordView): string | undefined {
  if ((source as MarkedSource)[LOOKS_FOR] !== undefined) return source(record);
  const from = source.name === '' ? 'a function of yours' : `the function ${source.name}`;
  const result = called(source, from, record);
  if (result === undefined) return undefined;
  if (typeof result === 'string') return admittedText(result, from, record);
  // An async function's rejection has nobody else to go to and would end the process; the error below tells of it.
  if (result instanceof Promise) result.catch(() => undefined);
  throw invalidId(
    record,
    from,
    `is ${kindOf(result)}; a source returns a string, or undefined for "none here", and cannot be async`,
  );
}

/** Refuses, where the decorator is written, what would fail at every record. */
export function checkSources(caller: string, sources: readonly unknown[]): void {
  const wrong = sources.findIndex((source) => typeof source !== 'function');
  if (sources.length > 0 && wrong === -1) return;
  const got = sources.length === 0 ? 'none' : `${kindOf(sources[wrong])} as number ${wrong + 1}`;
  throw new IdempotencyError(
    'OPTIONS_INVALID',
    `${caller}() takes one or more id sources and got ${got}. Pass sources such as header('event-id'), payload('id') or (record) => string | undefined`,
  );
}

function called(source: IdSource, from: string, record: RecordView): unknown {
  try {
    return source(record);
  } catch (error) {
    if (IdempotencyError.is(error)) throw error;
    throw invalidId(record, from, 'could not be read: the function threw', error);
  }
}

function kindOf(value: unknown): string {
  if (value === null) return 'null';
  if (value instanceof Promise) return 'a Promise';
  if (Array.isArray(value)) return 'an array';
  return typeof value === 'object' ? 'an object' : `a ${typeof value}`;
}
