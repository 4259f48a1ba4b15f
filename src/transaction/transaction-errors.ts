import { IdempotencyError } from '../shared/errors.js';
import { sqlState } from '../shared/sql-state.js';

export function transactionEnded(owner: string, cause?: unknown): IdempotencyError {
  return new IdempotencyError(
    'TRANSACTION_ENDED',
    `The transaction of ${owner} has ended, so this statement was not sent: it could not be part of the transaction any more. Await every database call before the handler ` +
      'returns; for work that shall live longer use TransactionScope.escape()',
    { cause },
  );
}

export function nestedEnded(owner: string): IdempotencyError {
  return new IdempotencyError(
    'TRANSACTION_ENDED',
    `A statement came after the nested transaction it belongs to had ended, in the transaction of ${owner}; it was not sent. Await every database call inside the nested transaction`,
  );
}

export function transactionAborted(owner: string, cause: unknown): IdempotencyError {
  return new IdempotencyError(
    'TRANSACTION_ABORTED',
    `The transaction of ${owner} was aborted by an earlier ${named(cause)}, so PostgreSQL refused what came after it and rolled back. If the handler means to catch that error and go on, ` +
      'put the statement into dataSource.transaction(): then only its savepoint is rolled back',
    { cause, retryable: true },
  );
}

/** What PostgreSQL answers to every statement after one that failed. */
const IN_FAILED_TRANSACTION = '25P02';

/** The error to tell of work that failed. Work that caught an SQL error and went on gets 25P02 from every later statement: then it is the first that counts. */
export function blamed(owner: string, error: unknown, firstError: unknown): unknown {
  return sqlState(error) === IN_FAILED_TRANSACTION ? transactionAborted(owner, firstError) : error;
}

export function connectionLost(owner: string, cause: unknown): IdempotencyError {
  return new IdempotencyError(
    'TRANSACTION_ABORTED',
    `The transaction of ${owner} lost its connection before COMMIT was sent (${named(cause)}), so nothing of it was written. Run it again`,
    { cause, retryable: true },
  );
}

export function sharedSavepointUndone(owner: string): IdempotencyError {
  return new IdempotencyError(
    'TRANSACTION_ABORTED',
    `In the transaction of ${owner} a nested transaction was rolled back that held statements of other code: it waited for them, and they waited for its end, so they were let into its ` +
      'savepoint. To lose none of them in silence the whole transaction is rolled back. Let a nested transaction await only its own statements',
    { retryable: true },
  );
}

export function commitUnknown(owner: string, cause: unknown): IdempotencyError {
  return new IdempotencyError(
    'COMMIT_UNKNOWN',
    `The connection was lost while COMMIT of ${owner} was on its way (${named(cause)}), so nobody knows whether the transaction is in the database. Run it again with the same claim: the claim decides`,
    { cause, retryable: true },
  );
}

export function claimBusy(owner: string, lockTimeoutMs: number, cause: unknown): IdempotencyError {
  return new IdempotencyError(
    'CLAIM_BUSY',
    `Another live copy of ${owner} holds the claim and did not end within ${lockTimeoutMs} ms. Try again later: if the other one commits, this one is a duplicate`,
    { cause, retryable: true },
  );
}

export function queryInFlight(owner: string, what: string): IdempotencyError {
  return new IdempotencyError(
    'QUERY_IN_FLIGHT',
    `When the work of ${owner} had settled, ${what}: nobody awaits it, so it could be half done at COMMIT. The transaction was rolled back. Await every database call and read streams to their end`,
  );
}

export function notPipelined(owner: string): IdempotencyError {
  return new IdempotencyError(
    'TRANSACTION_ABORTED',
    `A stream, a cursor or COPY was begun in the transaction of ${owner}, whose connection several handlers use at once (concurrency.interleave): the rows of one would reach another. ` +
      'The record runs again by itself, where it works. Set messagesPerTransaction to 1 for a handler that always reads so',
    { retryable: true },
  );
}

export function handMadeCommit(owner: string, what: string): IdempotencyError {
  return new IdempotencyError(
    'HAND_MADE_COMMIT',
    `${what} in the transaction of ${owner}, which is begun and ended for you: its claim and its effects must be committed together or not at all. ` +
      'Throw to roll back; use dataSource.transaction() for a savepoint, TransactionScope.escape() for a transaction of your own',
  );
}

export function nestedIsolation(owner: string, isolation: unknown): IdempotencyError {
  return new IdempotencyError(
    'NESTED_ISOLATION',
    `A nested transaction of ${owner} asked for isolation level ${String(isolation)}, but a savepoint has the level of its transaction and PostgreSQL would ignore the wish. ` +
      'Ask for the level where the transaction is opened, or leave it out here',
  );
}

export function outsideTransaction(why: string): IdempotencyError {
  return new IdempotencyError(
    'OUTSIDE_TRANSACTION',
    `TransactionScope.join() was given a manager ${why}, so there is nothing to join. Pass the manager that dataSource.transaction() hands to its callback, or use TransactionScope.run()`,
  );
}

export function databaseUnavailable(owner: string, cause: unknown): IdempotencyError {
  return new IdempotencyError(
    'DATABASE_UNAVAILABLE',
    `The database did not take the transaction of ${owner} (${named(cause)}). Nothing was done. Check that PostgreSQL is reachable and writable, and that the pool of the DataSource is large enough`,
    { cause, retryable: true },
  );
}

export function serverRestarted(): IdempotencyError {
  return new IdempotencyError(
    'DATABASE_UNAVAILABLE',
    'The database crashed or was started again, so transactions that were not on disk may be gone; their records are delivered again',
    { retryable: true },
  );
}

export function barrierUnreplicated(): IdempotencyError {
  return new IdempotencyError(
    'COMMIT_UNREPLICATED',
    'A commit was acknowledged without the synchronous standby, so what came before it may be lost in a failover. It is asked for again',
    { retryable: true },
  );
}

export function unanswered(ms: number): IdempotencyError {
  return new IdempotencyError('DATABASE_UNAVAILABLE', `The database did not answer within ${ms / 1000} s`, {
    retryable: true,
  });
}

/** The SQLSTATE if there is one: an error's own text can hold values of the row. */
function named(error: unknown): string {
  const state = sqlState(error);
  if (state !== undefined) return `error ${state}`;
  return error instanceof Error ? `error '${error.message}'` : 'error';
}
