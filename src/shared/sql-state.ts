const SERIALIZATION_FAILURE = '40001';
const DEADLOCK_DETECTED = '40P01';
const STALE_PLANS: readonly (string | undefined)[] = ['0A000', '26000'];

/**
 * The SQLSTATE of an error, found through wrappers: TypeORM's `driverError`, `cause` chains, the `error` of an RpcException, AggregateError.
 * `undefined` if none of them carries one.
 */
export function sqlState(error: unknown): string | undefined {
  for (const link of errorChain(error)) {
    const code = codeOf(link);
    if (typeof code === 'string' && /^(?=.*\d)[0-9A-Z]{5}$/.test(code)) return code;
  }
  return undefined;
}

/** 40001 or 40P01: the whole transaction has to run again, and it is nobody's fault. */
export function isSerializationFailure(error: unknown): boolean {
  const state = sqlState(error);
  return state === SERIALIZATION_FAILURE || state === DEADLOCK_DETECTED;
}

/** The same transaction may pass when it runs again: it lost against another one, or a statement prepared on its connection was out of date. */
export function isRerunnable(error: unknown): boolean {
  return isSerializationFailure(error) || STALE_PLANS.includes(sqlState(error));
}

/**
 * Connection trouble (class 08), out of disk, memory or connections (53), read-only (25006), shutdown and recovery (57P01 to 57P03), I/O error (58030):
 * no handler can help it, so it must never be counted against an event. PostgreSQL, appendix A. Only if seen on our own connection.
 */
export function isOutageState(state: string | undefined): boolean {
  return state !== undefined && /^(?:08|53)|^(?:25006|57P0[123]|58030)$/.test(state);
}

function codeOf(link: object): unknown {
  try {
    return (link as { code?: unknown }).code;
  } catch {
    return undefined; // as below
  }
}

function wrappedBy(link: object): unknown[] {
  try {
    const { driverError, cause, error, errors } = link as Record<string, unknown>;
    return [driverError, cause, error, ...(Array.isArray(errors) ? (errors as unknown[]) : [])];
  } catch {
    return []; // whatever was thrown may have getters that throw: then it tells nothing
  }
}

/** The error and everything it wraps, breadth first, each once. */
export function errorChain(error: unknown): object[] {
  const seen = new Set<object>();
  const queue: unknown[] = [error];
  for (let at = 0; at < queue.length && seen.size < 50; at += 1) {
    const link = queue[at];
    if (typeof link !== 'object' || link === null || seen.has(link)) continue;
    seen.add(link);
    queue.push(...wrappedBy(link));
  }
  return [...seen];
}
