import type { IdempotencyError } from '../shared/errors.js';
import {
  isSubmittable,
  type PgCallback,
  type PgClient,
  type PgQuery,
  type PgResult,
  type Submittable,
} from './pg-client.js';
import { oneWriteQueryOf } from './one-write.js';
import { Frame, SavepointOrder } from './savepoint-order.js';
import { isStalePlan, type StatementNames } from './statement-names.js';
import { isControlTag, kindOf, readsFromClient, verbOf, type StatementKind } from './transaction-control.js';
import { handMadeCommit, nestedEnded, notPipelined, queryInFlight, transactionEnded } from './transaction-errors.js';

const PATIENCE_MS = 1000;

/** Where a statement comes from: the savepoint its code runs in, and whether it is that savepoint's own SAVEPOINT, RELEASE or ROLLBACK TO. */
export interface StatementOrigin {
  readonly frame: Frame | undefined;
  readonly control: boolean;
}

class Statement {
  constructor(
    readonly text: string,
    readonly kind: StatementKind,
    /** The piece or savepoint it belongs to. Where the async context was lost, the innermost one. */
    readonly frame: Frame,
  ) {}
}

/**
 * The connection of one transaction, as TypeORM and the handler see it:
 * - after `close()` or `doom()` nothing reaches the client, whoever holds the facade;
 * - every statement is counted until it is answered, cursors and streams included;
 * - a command tag or a status that tells of a transaction ended or begun by hand cuts the connection;
 * - `firstError` is the first error since the last savepoint was undone: what PostgreSQL blames for an aborted transaction;
 * - statements of different savepoints never mix ({@link SavepointOrder});
 * - once it is pipelined, a text is one command, so that no COMMIT is hidden in one: statements of others are on the wire behind it already.
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
  /** In the order in which they were sent, and so in which they are answered. */
  readonly #inFlight: Statement[] = [];
  /** The piece of the transaction whose statement made `firstError` or `verdict`. */
  #broken: Frame | undefined;
  #pipelines = false;
  #isCorked = false;
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
    this.order = new SavepointOrder(PATIENCE_MS, () => this.#inFlight.length === 0);
    this.facade = new Proxy(client, new FacadeHandler((...form) => this.#query(...form), owner));
  }

  /** What is not finished, in words; `undefined` if nothing is. Of one piece, if others run at the same time: of pieces that follow one another, of all. */
  unfinishedOf(piece: Frame | undefined): string | undefined {
    const of = this.#pipelines ? piece : undefined;
    const running = this.#inFlight.filter(({ frame }) => of === undefined || frame.root === of);
    const [first] = running;
    if (first !== undefined)
      return `${running.length} statement(s) were still running (the first: ${verbOf(first.text)})`;
    return this.order.isBusy(of) ? 'a nested transaction was still open' : undefined;
  }

  /** Statements of several pieces at once, from here to the end of the transaction. */
  pipeline(): void {
    this.#pipelines = true;
    this.client.pipeline = true;
  }

  get isPipelined(): boolean {
    return this.#pipelines;
  }

  /** Once the end of the transaction is answered: the pool's other users have streams and cursors. */
  stopPipelining(): void {
    if (this.#pipelines) this.client.pipeline = false;
  }

  /** What another piece, or nobody knows which, did to the transaction is why this one can only fail. */
  isBrokenByOther(piece: Frame): boolean {
    return (this.verdict ?? this.firstError) !== undefined && this.#broken !== piece;
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

  doom(verdict: IdempotencyError, by?: Frame): void {
    if (this.verdict === undefined && this.firstError === undefined) this.#broken = by?.root;
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
      const done: PgCallback = (error, result) => {
        this.#answered(statement);
        if (error) this.#failed(error, statement);
        else if (statement.kind === 'rollback to') this.firstError = undefined;
        callback(error ? (this.#interruption ?? error) : error, result);
      };
      this.#inFlight.push(statement);
      try {
        if (this.#pipelines) this.#cork();
        if (typeof config === 'string') this.client.query(this.#prepared(config, values, done));
        else this.client.query(this.#derived(config), ...(values === undefined ? [done] : [values, done]));
      } catch (error) {
        done(error as Error, undefined as unknown as PgResult);
      }
    });
  }

  /** Only a text with values is named: without them pg uses the simple protocol, which takes several commands at once. */
  #prepared(text: string, values: unknown, callback: PgCallback): PgQuery {
    const query = new (oneWriteQueryOf(this.client))(text, values, callback);
    if (Array.isArray(values) && values.length > 0) query.name = this.names.nameOf(this.client, text);
    if (this.#pipelines) query.queryMode = 'extended';
    return query;
  }

  /** pg may write the callback into it, and the caller's may be used again. */
  #derived(config: unknown): object {
    const query = Object.create(Object(config) as object) as { queryMode?: string };
    if (this.#pipelines) query.queryMode = 'extended';
    return query;
  }

  /** What is sent in this turn leaves in one write. */
  #cork(): void {
    if (this.#isCorked) return;
    const { stream } = this.client.connection;
    this.#isCorked = true;
    stream.cork();
    process.nextTick(() => {
      this.#isCorked = false;
      stream.uncork();
    });
  }

  #submit(query: Submittable, values: unknown, callback: unknown): Submittable {
    const text = query.text ?? '';
    const refuse = (error: Error): void => process.nextTick(() => query.handleError(error, this.client.connection));
    if (this.#pipelines && this.refusal === undefined) {
      refuse(this.#refusePipelined(this.origin()));
      return query;
    }
    this.#admit(text, refuse, (statement) => {
      this.#inFlight.push(statement);
      const answered = query.handleReadyForQuery.bind(query);
      const failed = query.handleError.bind(query);
      query.handleReadyForQuery = (connection) => {
        this.#answered(statement);
        answered(connection);
      };
      query.handleError = (error, connection) => {
        this.#answered(statement);
        this.#failed(error, statement);
        failed(error, connection);
      };
      this.client.query(query, values, callback);
    });
    return query;
  }

  #answered(statement: Statement): void {
    const at = this.#inFlight.indexOf(statement);
    if (at !== -1) this.#inFlight.splice(at, 1);
  }

  #admit(text: string, refuse: (error: Error) => void, go: (statement: Statement) => void): void {
    const kind = kindOf(text);
    const origin = this.origin();
    const refusal = this.refusal ?? this.#objection(kind, text, origin);
    if (refusal !== undefined) return refuse(refusal);
    const frame = origin?.frame ?? this.order.innermost;
    const statement = new Statement(text, kind, frame);
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
      this.doom(verdict, origin?.frame);
      return verdict;
    }
    if (this.#pipelines && readsFromClient(text)) return this.#refusePipelined(origin);
    const frame = origin?.frame;
    if (frame === undefined || frame.state === 'open' || origin?.control === true) return undefined;
    // Rolled back, its late statement is rolled back with it. Released, it would be missing from work that is about to be committed.
    if (frame.state === 'released')
      this.doom(queryInFlight(this.owner, 'a statement of a nested transaction came after that had ended'), frame);
    return nestedEnded(this.owner);
  }

  /** What cannot be pipelined works where its record runs by itself; whoever catches this would go on without it. */
  #refusePipelined(origin: StatementOrigin | undefined): IdempotencyError {
    const verdict = notPipelined(this.owner);
    this.doom(verdict, origin?.frame);
    return verdict;
  }

  #failed(error: Error, statement: Statement): void {
    if (this.#interruption === undefined && this.firstError === undefined) {
      this.firstError = error;
      if (this.verdict === undefined) this.#broken = statement.frame.root;
    }
    // Behind another error a name may be unknown only because its statement was skipped.
    if (isStalePlan(error) && this.firstError === error) {
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
    this.doom(verdict, this.#inFlight[0]?.frame);
    this.#interruption ??= verdict;
    this.cut(verdict);
  }
}

/**
 * A class, and not an object literal as others are: V8 may learn to put what one literal makes straight into its old generation, and there a handler that is
 * dead already keeps everything of its transaction until the next full collection.
 */
class FacadeHandler implements ProxyHandler<PgClient> {
  constructor(
    private readonly query: PgClient['query'],
    private readonly owner: string,
  ) {}

  get(target: PgClient, property: string | symbol): unknown {
    if (property === 'query') return this.query;
    if (property === 'release' || property === 'end') return () => this.#refuse();
    const value: unknown = Reflect.get(target, property, target);
    return typeof value === 'function' ? (value as (...args: unknown[]) => unknown).bind(target) : value;
  }

  #refuse(): never {
    throw handMadeCommit(this.owner, 'The connection was to be released by hand');
  }
}

function textOf(config: unknown): string {
  if (typeof config === 'string') return config;
  const text = (config as { text?: unknown } | null | undefined)?.text;
  return typeof text === 'string' ? text : '';
}

function isFunction(value: unknown): value is PgCallback {
  return typeof value === 'function';
}
