import { oneWriteQueryOf, stepOf } from './one-write.js';
import type { PgClient, PgResult } from './pg-client.js';

/** A claim to be made by the first statement of a transaction: of one event, or of several. */
export interface ClaimRequest {
  /** One INSERT … ON CONFLICT DO NOTHING RETURNING … that limits its own wait, as `limitedInsert` and `limitedInserts` make it. */
  readonly text: string;
  readonly values: readonly unknown[];
  /** How long it waits for another live copy of the same claim. */
  readonly lockTimeoutMs: number;
}

/**
 * BEGIN, what is set for the transaction, and the claim in one round trip and under **one** Sync: PostgreSQL skips everything up to the Sync after an error,
 * so a BEGIN that fails or is cancelled takes the claim with it. Pipelined as two queries, each with its own Sync, the claim was committed alone.
 *
 * `begin`: statements without values or rows. Resolves with the rows of the claim.
 */
export function beginWithClaim(
  client: PgClient,
  begin: readonly string[],
  claim: ClaimRequest & { name: string | undefined },
): Promise<readonly Record<string, unknown>[]> {
  return new Promise((resolve, reject) => {
    const Query = oneWriteQueryOf(client);
    const query = new Query(
      claim.text,
      claim.values,
      (error, results) => (error ? reject(error) : resolve(claimedRows(results))),
      begin.map((text) => stepOf(client, text)),
    );
    query.name = claim.name;
    client.query(query);
  });
}

function claimedRows(results: PgResult | PgResult[]): readonly Record<string, unknown>[] {
  const all = Array.isArray(results) ? results : [results];
  return all.find(({ command }) => command === 'INSERT' || command === 'SELECT')?.rows ?? [];
}
