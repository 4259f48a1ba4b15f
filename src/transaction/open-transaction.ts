import type { EntityManager } from 'typeorm';
import type { Durability, Isolation } from '../shared/handler-profile.js';
import type { ClaimRequest } from './begin-query.js';
import type { NextTransaction } from './next-transaction.js';
import type { Frame } from './savepoint-order.js';

export type { Isolation };

/** A piece of the work where several share a transaction. */
export type Piece = Frame;

export interface OpenRequest {
  /** Named in errors: "consumer 'billing.charge', orders-3@41". */
  readonly owner: string;
  /** Default: the level of the DataSource, else of the server. */
  readonly isolation?: Isolation | undefined;
  /** `window`: COMMIT is acknowledged before it is on disk. Only with a claim. Default `commit`: as the session has it. */
  readonly durability?: Durability | undefined;
  /** Made by the first statement, in the same round trip as BEGIN. */
  readonly claim?: ClaimRequest | undefined;
  /** Given the means to end the attempt by force while BEGIN and claim are not answered yet. */
  readonly onBegin?: ((transaction: Pick<OpenTransaction, 'destroy'>) => void) | undefined;
}

export type TransactionPhase = 'open' | 'ending' | 'committed' | 'rolled back' | 'unknown' | 'destroyed';

/** One PostgreSQL transaction that was begun and whose end is in the hands of whoever opened it. */
export interface OpenTransaction {
  /** The rows that the claim returned; none without a claim, or if it was made before. */
  readonly claimed: readonly Record<string, unknown>[];
  readonly phase: TransactionPhase;
  /** The first error seen on this transaction's own connection, its loss included. */
  readonly firstError: unknown;
  /** That error is one that no work in the transaction can help: the database is away, full or read-only. */
  readonly isOutage: boolean;
  /** It was, or was to be, ended by hand: what ran before that may be committed. */
  readonly isEndedByHand: boolean;
  readonly manager: EntityManager;
  /** Calls `work` in the transaction's async context, as a part of that piece if one is given: repositories of the DataSource join there. */
  within<T>(work: () => T, piece?: Piece): T;
  /** For pieces that run at once: statements are sent without waiting for the answers to those of others. Not taken back before the end. */
  pipeline(): void;
  beginPiece(): Piece;
  /**
   * Ends a piece of the work where several share the transaction. What runs that nobody awaits, an error that aborted the transaction, and a deferred
   * constraint that the piece violated show here, and not at COMMIT, where nobody could tell whose they are. Later statements of the piece are refused.
   * `check`: what to send for the constraints. `ended`: called when that is done, with an error as {@link OpenTransaction.commit} throws it, but the end is left
   * to the caller. A callback, for this is done for every record, and in whichever piece's async context.
   */
  endPiece(piece: Piece, check: string | undefined, ended: (error?: unknown) => void): void;
  /** Whatever this piece meets now, the transaction had ended or was to be rolled back before, and not because of it. */
  isBrokenByOther(piece: Piece): boolean;
  /**
   * Waits one turn of the event loop, then sends COMMIT and reads the command tag.
   *
   * Throws `QUERY_IN_FLIGHT` if something still runs that nobody awaits, `HAND_MADE_COMMIT` if a transaction was begun or ended by hand,
   * `TRANSACTION_ABORTED` if PostgreSQL rolled back (its cause is the first error), `COMMIT_UNKNOWN` if the connection went away meanwhile, and the
   * driver's own error if PostgreSQL refused the COMMIT (a deferred constraint, 40001). In each case the transaction is over.
   *
   * `next`: begun behind it on the same connection, in the same write, where that can be; kept only if this one is committed.
   */
  commit(next?: NextTransaction): Promise<void>;
  /** The error to tell when the work in the transaction failed with this one: the first, where it is only the consequence of another (25P02). */
  blamed(error: unknown): unknown;
  /** Never rejects. A connection that gives trouble is destroyed, not returned to the pool. */
  rollback(): Promise<void>;
  /** At once and at any time: nothing is sent any more, the connection is destroyed, pending queries reject. A COMMIT on its way becomes unknown. */
  destroy(error: Error): void;
}
