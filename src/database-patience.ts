import { setTimeout as sleep } from 'node:timers/promises';
import { Logger } from '@nestjs/common';
import { IdempotencyError } from './shared/errors.js';
import { isOutageState, sqlState } from './shared/sql-state.js';

/** About as long as TypeORM tries to connect in front of this. */
const PATIENCE_MS = 30_000;
const RETRY_MS = 1000;

/**
 * What the start asks of the database: a connection that is lost meanwhile, or a server that starts anew, does not end the process, as a wrong answer does.
 * Throws DATABASE_UNAVAILABLE when the database is away for 30 seconds.
 */
export async function whileDatabaseReturns<T>(ask: () => Promise<T>): Promise<T> {
  const givenUpAt = performance.now() + PATIENCE_MS;
  for (let tries = 1; ; tries += 1) {
    try {
      return await ask();
    } catch (error) {
      if (!isAway(error)) throw error;
      if (performance.now() > givenUpAt) throw unavailable(error);
      if (tries === 1)
        new Logger('IdempotencyModule').warn('The database does not answer the start-up checks; they are tried again');
      await sleep(RETRY_MS);
    }
  }
}

/** Without a state it is no answer of the server. */
function isAway(error: unknown): boolean {
  const state = sqlState(error);
  return !IdempotencyError.is(error) && (state === undefined || isOutageState(state));
}

function unavailable(cause: unknown): IdempotencyError {
  const message = `The database did not answer the start-up checks for ${PATIENCE_MS / 1000} s, so the application does not start. Check that PostgreSQL is reachable with the options of the DataSource`;
  return new IdempotencyError('DATABASE_UNAVAILABLE', message, { cause, retryable: true });
}
