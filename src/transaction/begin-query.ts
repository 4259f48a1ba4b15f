import type { PgCallback, PgClient, PgConnection, PgResult } from './pg-client.js';

/** A claim to be made by the first statement of a transaction. */
export interface ClaimRequest {
  /** One INSERT … ON CONFLICT DO NOTHING RETURNING …. */
  readonly text: string;
  readonly values: readonly unknown[];
  /** How long to wait for another live copy of the same claim. */
  readonly lockTimeoutMs: number;
}

interface OneSyncRequest {
  readonly before: readonly string[];
  readonly claim: { text: string; values: readonly unknown[]; name: string | undefined };
  readonly after: readonly string[];
}

// The value the session had, whoever set it (server, role, pool hook), is kept in a parameter of ours and put back after the claim: DEFAULT would
// give the value the session started with. Both are conditions that are never true, so that no row comes back; OR evaluates them in this order.
const SAVED_TIMEOUT = 'nestjs_kafka_idempotency.lock_timeout';
const limitWait = (timeoutMs: number): string =>
  `SELECT WHERE set_config('${SAVED_TIMEOUT}', current_setting('lock_timeout'), true) IS NULL OR set_config('lock_timeout', '${Math.max(1, Math.round(timeoutMs))}', true) IS NULL`;
const RESTORE_WAIT = `SELECT WHERE set_config('lock_timeout', current_setting('${SAVED_TIMEOUT}'), true) IS NULL`;

/**
 * BEGIN and the claim in one round trip and under **one** Sync: PostgreSQL skips everything up to the Sync after an error, so a BEGIN that fails or
 * is cancelled takes the claim with it. Pipelined as two queries, each with its own Sync, the claim was committed alone.
 */
export function beginWithClaim(
  client: PgClient,
  begin: string,
  claim: ClaimRequest & { name: string | undefined },
): Promise<readonly Record<string, unknown>[]> {
  const OneSyncQuery = oneSyncQuery(client);
  return new Promise((resolve, reject) => {
    const request: OneSyncRequest = { before: [begin, limitWait(claim.lockTimeoutMs)], claim, after: [RESTORE_WAIT] };
    const callback: PgCallback = (error, results) => {
      if (error) reject(error);
      else resolve(claimedRows(results));
    };
    client.query(new OneSyncQuery(request, callback));
  });
}

function claimedRows(results: PgResult | PgResult[]): readonly Record<string, unknown>[] {
  const all = Array.isArray(results) ? results : [results];
  return all.find((result) => result.command === 'INSERT')?.rows ?? [];
}

type OneSyncClass = new (request: OneSyncRequest, callback: PgCallback) => object;
/** A memo, no state: one derived class per Query class of a pg copy. */
const derived = new WeakMap<object, OneSyncClass>();

function oneSyncQuery(client: PgClient): OneSyncClass {
  const { Query } = client.constructor as unknown as { Query: object };
  let found = derived.get(Query);
  if (found === undefined) derived.set(Query, (found = deriveFrom(Query)));
  return found;
}

// any: pg's own Query, so that rows are parsed, and pipeline mode is passed, as pg does it; its types do not show `prepare`.
function deriveFrom(Query: any): OneSyncClass {
  return class OneSyncQuery extends Query {
    readonly #request: OneSyncRequest;

    constructor(request: OneSyncRequest, callback: PgCallback) {
      super({ text: request.claim.text, values: [...request.claim.values], name: request.claim.name }, undefined, callback);
      this.#request = request;
    }

    submit(connection: PgConnection): null {
      connection.stream.cork();
      try {
        for (const text of this.#request.before) step(connection, text);
        (this as any).prepare(Object.create(connection, { sync: { value: () => undefined } }));
        for (const text of this.#request.after) step(connection, text);
        connection.sync();
      } finally {
        connection.stream.uncork();
      }
      return null;
    }
  };
}

function step(connection: PgConnection, text: string): void {
  connection.parse({ text, name: '' });
  connection.bind({ portal: '', statement: '' });
  connection.execute({ portal: '' });
}
