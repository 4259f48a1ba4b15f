import { IdempotencyError } from './errors.js';
import { oneLine } from './one-line.js';
import type { FailedAttempt } from './parking.js';
import { errorChain, isSerializationFailure } from './sql-state.js';

/** How many entries the history of a parked event keeps: the newest. */
export const HISTORY_ENTRIES = 20;
const MESSAGE_BYTES = 1024;
const NAME_BYTES = 255;

/**
 * What is kept of an error, whatever was thrown; a value whose getters throw tells nothing. Never a payload: of an error its name and message alone.
 * The code is that of the first {@link IdempotencyError} in it or its causes; else what Nest's validation, or PostgreSQL's serialization, says of itself; else HANDLER_FAILED.
 */
export function noteOf(error: unknown, at: Date): FailedAttempt {
  return {
    at,
    code: codeOf(error),
    name: oneLine(nameOf(error), NAME_BYTES),
    message: oneLine(messageOf(error), MESSAGE_BYTES),
  };
}

function codeOf(error: unknown): string {
  const chain = errorChain(error);
  for (const link of chain) {
    const code = read(() => (IdempotencyError.is(link) ? link.code : undefined));
    if (typeof code === 'string') return oneLine(code, NAME_BYTES);
  }
  if (chain.some(isBadRequest)) return 'VALIDATION_FAILED';
  return isSerializationFailure(error) ? 'SERIALIZATION_FAILED' : 'HANDLER_FAILED';
}

/** Nest's BadRequestException, which its ValidationPipe throws, of whatever copy of Nest. */
function isBadRequest(link: object): boolean {
  return read(() => (link as { getStatus?: () => unknown }).getStatus?.()) === 400;
}

function nameOf(error: unknown): string {
  if (typeof error !== 'object' || error === null) return typeof error;
  const name = read(() => (error as { name?: unknown }).name);
  if (typeof name === 'string' && name !== '') return name;
  const made = read(() => error.constructor.name as unknown);
  return typeof made === 'string' && made !== '' ? made : 'object';
}

function messageOf(error: unknown): string {
  if (typeof error === 'string') return error;
  const message = read(() => (error as { message?: unknown } | null | undefined)?.message);
  return typeof message === 'string' ? message : '';
}

function read<T>(look: () => T): T | undefined {
  try {
    return look();
  } catch {
    return undefined; // a getter or a proxy that throws: it tells nothing
  }
}
