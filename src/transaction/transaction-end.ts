import { sqlState } from '../shared/sql-state.js';
import { send, type PgCallback, type PgClient, type PgResult } from './pg-client.js';

/** How COMMIT ended. `rolled back`: PostgreSQL answered ROLLBACK, which drivers call success. */
export type CommitOutcome =
  | { readonly kind: 'committed' }
  | { readonly kind: 'rolled back' }
  | { readonly kind: 'refused' | 'unknown'; readonly error: Error };

/**
 * Sends COMMIT and says what became of the transaction. Only the command tag tells: the transaction status before it can be stale.
 * An error is a refusal (deferred constraint, 40001) only if the session lives on after it: what ends the session (57P01, a PANIC, a lost socket) may
 * have come after the commit was written.
 */
export function sendCommit(client: PgClient): Promise<CommitOutcome> {
  return new Promise((resolve) => {
    const answered: PgCallback = (error, result) => {
      if (error) resolve(uncommitted(client, error));
      else resolve({ kind: (result as PgResult).command === 'COMMIT' ? 'committed' : 'rolled back' });
    };
    client.query('COMMIT', answered);
  });
}

async function uncommitted(client: PgClient, error: Error): Promise<CommitOutcome> {
  const isRefusal = sqlState(error) !== undefined && (await isAlive(client));
  return { kind: isRefusal ? 'refused' : 'unknown', error };
}

/** Resolves with the trouble, if there was any; the connection must then be destroyed. A statement still running gets `patienceMs` to end. */
export async function sendRollback(client: PgClient, patienceMs: number): Promise<Error | undefined> {
  let timer: NodeJS.Timeout | undefined;
  const impatience = new Promise<Error>((resolve) => {
    timer = setTimeout(() => resolve(new Error(`ROLLBACK was not answered within ${patienceMs} ms`)), patienceMs);
  });
  const sent = send(client, 'ROLLBACK').then(
    () => undefined,
    (error: Error) => error,
  );
  const trouble = await Promise.race([sent, impatience]);
  clearTimeout(timer);
  return trouble;
}

async function isAlive(client: PgClient): Promise<boolean> {
  try {
    await send(client, 'SELECT 1');
    return true;
  } catch {
    return false; // The answer, not a failure: the session ended with the error.
  }
}
