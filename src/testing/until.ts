import { inspect } from 'node:util';

export interface UntilOptions {
  /** What is awaited, as it should stand in the failure: "the row of order 7". */
  what: string;
  /** How long to wait at most, in milliseconds. Default 15000. */
  timeoutMs?: number;
  /** Pause between two looks, in milliseconds. Default 25. */
  intervalMs?: number;
}

type Truthy<T> = Exclude<T, false | null | undefined | 0 | ''>;

/**
 * Waits until `condition` gives something truthy, and returns that.
 * A condition that throws, rejects or hangs counts as "not yet"; the failure says what was awaited and what was seen last.
 */
export async function until<T>(condition: () => T | Promise<T>, options: UntilOptions): Promise<Truthy<T>> {
  const { what, timeoutMs = 15_000, intervalMs = 25 } = options;
  const deadline = Date.now() + timeoutMs;
  let seen: Look<T> = { kind: 'hung' };
  for (;;) {
    const look = await lookBefore(deadline, condition);
    if (look.kind === 'value' && look.value) return look.value as Truthy<T>;
    if (look.kind !== 'hung' || seen.kind === 'hung') seen = look;
    if (Date.now() + intervalMs >= deadline) throw failure(what, timeoutMs, seen);
    await new Promise((resolve) => setTimeout(resolve, intervalMs));
  }
}

type Look<T> = { kind: 'value'; value: T } | { kind: 'error'; error: unknown } | { kind: 'hung' };

async function lookBefore<T>(deadline: number, condition: () => T | Promise<T>): Promise<Look<T>> {
  let timer: NodeJS.Timeout | undefined;
  const hung = new Promise<Look<T>>((resolve) => {
    timer = setTimeout(() => resolve({ kind: 'hung' }), Math.max(deadline - Date.now(), 1));
  });
  const look = (async (): Promise<Look<T>> => ({ kind: 'value', value: await condition() }))().catch(
    (error: unknown): Look<T> => ({ kind: 'error', error }),
  );
  try {
    return await Promise.race([look, hung]);
  } finally {
    clearTimeout(timer);
  }
}

function failure(what: string, timeoutMs: number, seen: Look<unknown>): Error {
  const waited = `Waited ${timeoutMs} ms for ${what}`;
  switch (seen.kind) {
    case 'value':
      return new Error(`${waited}; the last value was ${inspect(seen.value, { depth: 4 })}.`);
    case 'error':
      return new Error(`${waited}; the last look failed with ${describe(seen.error)}.`, { cause: seen.error });
    case 'hung':
      return new Error(`${waited}; looking itself did not come to an end.`);
  }
}

function describe(error: unknown): string {
  return error instanceof Error ? `${error.name}: ${error.message || inspect(error)}` : inspect(error);
}
