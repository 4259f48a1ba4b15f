import type { IdempotencyError } from '../shared/errors.js';
import {
  isSubmittable,
  queryClassOf,
  type PgCallback,
  type PgClient,
  type PgQuery,
  type PgResult,
  type Submittable,
} from './pg-client.js';
import { Frame, SavepointOrder } from './savepoint-order.js';
import { isStalePlan, type StatementNames } from './statement-names.js';
import { isControlTag, kindOf, verbOf, type StatementKind } from './transaction-control.js';
import { handMadeCommit, nestedEnded, queryInFlight, transactionEnded } from './transaction-errors.js';

const PATIENCE_MS = 1000;

/** Where a statement comes from: the savepoint its code runs in, and whether it is that savepoint's own SAVEPOINT, RELEASE or ROLLBACK TO. */
export interface StatementOrigin {
  readonly frame?: Frame;
  readonly control?: boolean;
}

interface Statement {
  readonly text: string;
  readonly kind: StatementKind;
  /** The savepoint it belongs to. `undefined` where the async context was lost: then the innermost one. */
  readonly frame: Frame | undefined;
}

/**
 * The connection of one transaction, as TypeORM and the handler see it:
 * - after `close()` or `doom()` nothing reaches the client, whoever holds the facade;
 * - every statement is counted until it is answered, cursors and streams included;
 * - a command tag or a status that tells of a transaction ended or begun by hand cuts the connection;
 * - `firstError` is the first error since the last savepoint was undone: what PostgreSQL blames for an aborted transaction;
 * - statements of different savepoints never mix ({@link SavepointOrder}).
 */
export class GatedConnection {
  /** Stands in for the client; everything but `query`, `release` and `end` is the client's own. */
  readonly facade: PgClient;
  readonly order: SavepointOrder;
  firstError: unknown;
  /** Set when the transaction can only be rolled back, whatever the handler does next. */
  verdict: IdempotencyError | undefined;
  /** A prepared statement of this connection is out of date: it must not serve another transaction. */
  isStale = false;
  #inFlight = new Map<object, string>();
  #refusal: (() => Error) | undefined;
  #interruption: Error | undefined;
  #rollbacksTo = 0;
  readonly #onTag = (message: { text: string }): void => this.#watchTag(message.text);
  readonly #onReady = (message: { status: string }): void => {
    if (message.status === 'I') this.#endedByHand('PostgreSQL was outside any transaction after a statement');
  };

  constructor(
    readonly client: PgClient,
    private readonly owner: string,
    private readonly names: StatementNames,
    private readonly origin: () => StatementOrigin | undefined,
    /** Cuts the connection at once: statements in pg's queue would run outside the transaction. */
    private readonly cut: (error: Error) => void,
  ) {
    this.order = new SavepointOrder(PATIENCE_MS, () => this.#inFlight.size === 0);
    this.facade = facadeOf(client, (...form) => this.#query(...form), owner);
  }

  /** What is not finished, in words; `undefined` if nothing is. */
  get unfinished(): string | undefined {
    const [verb] = this.#inFlight.values();
    if (verb !== undefined) return `${this.#inFlight.size} statement(s) were still running (the first: ${verb})`;
    return this.order.isBusy ? 'a nested transaction was still open' : undefined;
  }

  /**
   * From BEGIN's answer until ours to end it. A tag tells of `COMMIT; BEGIN`, the status of a COMMIT that failed and so left no tag. Both listen ahead
   * of pg, which sends the next statement in its queue as soon as it hears that the server is ready.
   */
  watch(): void {
    this.client.connection.prependListener('commandComplete', this.#onTag);
    this.client.connection.prependListener('readyForQuery', this.#onReady);
  }

  unwatch(): void {
    this.client.connection.removeListener('commandComplete', this.#onTag);
    this.client.connection.removeListener('readyForQuery', this.#onReady);
  }

  /** The transaction ends: what comes now is refused, each with an error that shows who came. */
  close(refusal: () => Error): void {
    this.#refusal = refusal;
    this.order.refuseAll(refusal);
  }

  /** The transaction ends by force: what is still running gets this error instead of the driver's. */
  interrupt(refusal: () => Error): void {
    this.#interruption = refusal();
    this.close(refusal);
  }

  doom(verdict: IdempotencyError): void {
    this.verdict ??= verdict;
    if (this.#refusal === undefined) this.close(() => verdict);
  }

  /** Why a statement that comes from here is not sent; `undefined` if it may be. */
  get refusal(): Error | undefined {
    if (this.#refusal !== undefined) return this.#refusal();
    return this.origin()?.frame?.state === 'ended' ? transactionEnded(this.owner) : undefined;
  }

  #query(config: unknown, values: unknown, callback: unknown): unknown {
    if (isSubmittable(config)) return this.#submit(config, values, callback);
    const given = [values, callback, (config as { callback?: unknown } | null)?.callback].find(isFunction);
    const bound = typeof values === 'function' ? undefined : values;
    if (given !== undefined) {
      this.#start(config, bound, given, (error) => process.nextTick(given, error));
      return undefined;
    }
    return new Promise((resolve, reject) => {
      this.#start(config, bound, (error, result) => (error ? reject(error) : resolve(result)), reject);
    });
  }

  #start(config: unknown, values: unknown, callback: PgCallback, refuse: (error: Error) => void): void {
    const text = textOf(config);
    this.#admit(text, refuse, (statement) => {
      const token = {};
      const done: PgCallback = (error, result) => {
        this.#inFlight.delete(token);
        if (error) this.#failed(error, statement);
        else if (statement.kind === 'rollback to') this.firstError = undefined;
        callback(error ? (this.#interruption ?? error) : error, result);
      };
      this.#inFlight.set(token, verbOf(text));
      try {
        if (typeof config === 'string') this.client.query(this.#prepared(config, values, done));
        // A derived object: pg may write the callback into it, and the caller's may be used again.
        else
          this.client.query(
            Object.create(Object(config) as object),
            ...(values === undefined ? [done] : [values, done]),
          );
      } catch (error) {
        done(error as Error, undefined as unknown as PgResult);
      }
    });
  }

  /** Only a text with values is named: without them pg uses the simple protocol, which takes several commands at once. */
  #prepared(text: string, values: unknown, callback: PgCallback): PgQuery {
    const query = new (queryClassOf(this.client))(text, values, callback);
    if (Array.isArray(values) && values.length > 0) query.name = this.names.nameOf(this.client, text);
    return query;
  }

  #submit(query: Submittable, values: unknown, callback: unknown): Submittable {
    const text = query.text ?? '';
    const refuse = (error: Error): void => process.nextTick(() => query.handleError(error, this.client.connection));
    this.#admit(text, refuse, (statement) => {
      const token = {};
      this.#inFlight.set(token, verbOf(text));
      const answered = query.handleReadyForQuery.bind(query);
      const failed = query.handleError.bind(query);
      query.handleReadyForQuery = (connection) => {
        this.#inFlight.delete(token);
        answered(connection);
      };
      query.handleError = (error, connection) => {
        this.#inFlight.delete(token);
        this.#failed(error, statement);
        failed(error, connection);
      };
      this.client.query(query, values, callback);
    });
    return query;
  }

  #admit(text: string, refuse: (error: Error) => void, go: (statement: Statement) => void): void {
    const kind = kindOf(text);
    const origin = this.origin();
    const refusal = this.refusal ?? this.#objection(kind, text, origin);
    if (refusal !== undefined) return refuse(refusal);
    const frame = origin?.frame ?? this.order.innermost;
    const statement = { text, kind, frame };
    this.order.take({
      frame,
      refuse,
      go: () => {
        if (kind === 'rollback to') this.#rollbacksTo += 1;
        go(statement);
      },
    });
  }

  #objection(kind: StatementKind, text: string, origin: StatementOrigin | undefined): Error | undefined {
    if (kind === 'control') {
      const verdict = handMadeCommit(this.owner, `${verbOf(text)} was called by hand`);
      this.doom(verdict);
      return verdict;
    }
    const frame = origin?.frame;
    if (frame === undefined || frame.state === 'open' || origin?.control === true) return undefined;
    // Rolled back, its late statement is rolled back with it. Released, it would be missing from work that is about to be committed.
    if (frame.state === 'released')
      this.doom(queryInFlight(this.owner, 'a statement of a nested transaction came after that had ended'));
    return nestedEnded(this.owner);
  }

  #failed(error: Error, statement: Statement): void {
    if (this.#interruption === undefined) this.firstError ??= error;
    if (isStalePlan(error)) {
      this.isStale = true;
      this.names.forget();
    }
    if (statement.kind === 'rollback to') this.#usedRollbackTo();
  }

  #watchTag(tag: string): void {
    if (!isControlTag(tag)) return;
    if (tag === 'ROLLBACK') this.#usedRollbackTo();
    else this.#endedByHand(`PostgreSQL answered ${tag}`);
  }

  /** Each ROLLBACK TO accounts for one answer, a tag or an error; what goes beyond ended the transaction. */
  #usedRollbackTo(): void {
    this.#rollbacksTo -= 1;
    if (this.#rollbacksTo < 0) this.#endedByHand('PostgreSQL answered ROLLBACK');
  }

  #endedByHand(what: string): void {
    this.unwatch();
    const verdict = handMadeCommit(this.owner, `${what} (what ran before it may be committed by now)`);
    this.doom(verdict);
    this.#interruption ??= verdict;
    this.cut(verdict);
  }
}

function facadeOf(client: PgClient, query: PgClient['query'], owner: string): PgClient {
  const refuse = (): never => {
    throw handMadeCommit(owner, 'The connection was to be released by hand');
  };
  return new Proxy(client, {
    get(target, property) {
      if (property === 'query') return query;
      if (property === 'release' || property === 'end') return refuse;
      const value: unknown = Reflect.get(target, property, target);
      return typeof value === 'function' ? (value as (...args: unknown[]) => unknown).bind(target) : value;
    },
  });
}

function textOf(config: unknown): string {
  if (typeof config === 'string') return config;
  const text = (config as { text?: unknown } | null | undefined)?.text;
  return typeof text === 'string' ? text : '';
}

function isFunction(value: unknown): value is PgCallback {
  return typeof value === 'function';
}
