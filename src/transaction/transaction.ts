import type { DataSource, EntityManager, QueryRunner } from 'typeorm';
import { IdempotencyError } from '../shared/errors.js';
import type { EmitEvent } from '../shared/events.js';
import { isOutageState, sqlState } from '../shared/sql-state.js';
import { beginWithClaim } from './begin-query.js';
import { GatedConnection } from './gated-connection.js';
import { runNested } from './nested-transaction.js';
import type { NextTransaction } from './next-transaction.js';
import type { OpenRequest, OpenTransaction, Piece, TransactionPhase } from './open-transaction.js';
import { OwnRunner, type RunningTransaction, type TransactionEvent } from './own-runner.js';
import { send } from './pg-client.js';
import { Frame } from './savepoint-order.js';
import type { ServerRun } from './server-run.js';
import { isStalePlan, type StatementNames } from './statement-names.js';
import { enter, entryOf, outside, type NestedRequest } from './transaction-context.js';
import { sendCommit, sendRollback, type CommitOutcome } from './transaction-end.js';
import {
  blamed,
  claimBusy,
  commitUnknown,
  connectionLost,
  databaseUnavailable,
  queryInFlight,
  transactionAborted,
  transactionEnded,
} from './transaction-errors.js';

const WINDOW = 'SET LOCAL synchronous_commit = off';
const ROLLBACK_PATIENCE_MS = 5000;
const LOCK_NOT_AVAILABLE = '55P03';
/** Errors of a claim after which the session is as good as before, once it has rolled back. */
const HARMLESS_IN_CLAIM = new Set([LOCK_NOT_AVAILABLE, '40001', '40P01']);

interface Setting {
  readonly dataSource: DataSource;
  readonly names: StatementNames;
  readonly server: ServerRun;
  readonly emit: EmitEvent;
}

export async function openTransaction(setting: Setting, request: OpenRequest): Promise<OpenTransaction> {
  const transaction = new Transaction(setting, request, await OwnRunner.checkOut(setting.dataSource, request.owner));
  request.onBegin?.(transaction);
  return await transaction.begin();
}

class Transaction implements OpenTransaction, RunningTransaction {
  phase: TransactionPhase = 'open';
  claimed: readonly Record<string, unknown>[] = [];
  readonly owner: string;
  readonly emit: EmitEvent;
  private readonly dataSource: DataSource;
  private readonly names: StatementNames;
  readonly #connection: GatedConnection;
  /** Begun behind the COMMIT of another. */
  #isBehind = false;
  #afterCommit: Set<() => void> | undefined;
  /** Set by the first sign of it: the server may say why before the socket ends. */
  #isLost: boolean | undefined;
  #turn: (() => void)[] | undefined;

  constructor(
    private readonly setting: Setting,
    private readonly request: OpenRequest,
    private readonly runner: OwnRunner,
  ) {
    this.dataSource = setting.dataSource;
    this.names = setting.names;
    this.emit = setting.emit;
    this.owner = request.owner;
    this.#connection = new GatedConnection(
      runner.client,
      request.owner,
      this.names,
      () => entryOf(this),
      (error) => runner.destroy(error),
    );
    runner.takeOver(this, this.#connection.facade);
  }

  get manager(): EntityManager {
    return this.runner.manager;
  }
  get queryRunner(): QueryRunner {
    return this.runner.queryRunner;
  }
  get ended(): boolean {
    return this.phase !== 'open';
  }
  get firstError(): unknown {
    return this.#connection.firstError;
  }
  get refusal(): Error | undefined {
    return this.#connection.refusal;
  }

  get isOutage(): boolean {
    return this.#isLost === true || isOutageState(sqlState(this.firstError));
  }

  get isEndedByHand(): boolean {
    return IdempotencyError.is(this.#connection.verdict, 'HAND_MADE_COMMIT');
  }

  within<T>(work: () => T, frame = this.#connection.order.root): T {
    return enter(this.dataSource, { transaction: this, frame }, work);
  }

  pipeline(): void {
    this.#connection.pipeline();
  }

  beginPiece(): Piece {
    return new Frame(undefined);
  }

  isBrokenByOther(piece: Piece): boolean {
    return this.phase !== 'open' || this.#connection.isBrokenByOther(piece);
  }

  nested(request: NestedRequest): Promise<unknown> {
    return runNested(
      { dataSource: this.dataSource, transaction: this, runner: this.runner, connection: this.#connection },
      request,
    );
  }

  afterCommit(listener: () => void): void {
    (this.#afterCommit ??= new Set()).add(listener);
  }

  /** In one function, as commit() is: each promise more costs microseconds, for every record. */
  async begin(): Promise<this> {
    try {
      if (this.runner.hasSubscribers) await this.#ask('Before', 'TransactionStart');
      try {
        const met = this.setting.server.meet(this.runner.client);
        if (met !== undefined) await met;
        this.claimed = await this.#sendBegin();
      } catch (error) {
        throw this.#notBegun(error);
      }
      this.runner.markBegun();
      this.#connection.watch();
      if (this.runner.hasSubscribers) await this.#ask('After', 'TransactionStart');
      return this;
    } catch (error) {
      await this.#abandon(error);
      throw error;
    } finally {
      if (this.#isBehind) this.runner.client.pipeline = false; // everything sent so is answered
    }
  }

  endPiece(piece: Piece, check: string | undefined, ended: (error?: unknown) => void): void {
    if (this.phase !== 'open') return ended(this.#ended());
    this.#nextTurn(() => {
      const fault = this.#faultOf(piece);
      if (fault !== undefined) return ended(fault);
      const end = () => {
        piece.state = 'ended';
        ended();
      };
      if (check === undefined) end();
      else this.#check(check).then(end, ended);
    });
  }

  async commit(next?: NextTransaction): Promise<void> {
    if (this.phase !== 'open') throw this.#ended();
    try {
      if (this.#connection.verdict !== undefined) throw this.#connection.verdict;
      if (this.runner.hasSubscribers) await this.#ask('Before', 'TransactionCommit');
      await new Promise<void>((resolve) => this.#nextTurn(resolve));
      this.#checkRest();
    } catch (error) {
      await this.rollback();
      throw error;
    }
    this.#close();
    const outcome = await (next === undefined ? sendCommit(this.runner.client) : this.#sendCommitAnd(next));
    if (outcome.kind !== 'committed') throw await this.#notCommitted(outcome, next);
    this.phase = 'committed';
    if (this.#afterCommit !== undefined) for (const listener of this.#afterCommit) listener();
    this.#letGo();
    if (this.runner.hasSubscribers) await this.#tell('After', 'TransactionCommit');
  }

  async rollback(): Promise<void> {
    if (this.phase !== 'open') return;
    this.#close();
    if (this.runner.hasSubscribers) await this.#tell('Before', 'TransactionRollback');
    const trouble = await sendRollback(this.runner.client, ROLLBACK_PATIENCE_MS);
    if (!this.#becomes('rolled back')) return;
    this.#letGo(trouble);
    if (this.runner.hasSubscribers) await this.#tell('After', 'TransactionRollback');
  }

  blamed(error: unknown): unknown {
    return blamed(this.owner, error, this.firstError);
  }

  destroy(error: Error): void {
    if (this.phase !== 'open' && this.phase !== 'ending') return;
    this.phase = 'destroyed';
    this.#connection.firstError ??= error;
    this.#connection.interrupt(() => transactionEnded(this.owner, error));
    this.#connection.unwatch();
    this.runner.destroy(error);
  }

  lose(error: Error, isByHand: boolean): void {
    const state = sqlState(error);
    this.#isLost ??= !isByHand && (state === undefined || isOutageState(state));
    this.#connection.firstError ??= error;
    this.#connection.unwatch();
    this.#connection.doom(connectionLost(this.owner, this.firstError));
  }

  doomedByHand(error: Error): void {
    if (IdempotencyError.is(error, 'HAND_MADE_COMMIT')) this.#connection.doom(error);
  }

  #sendBegin(): Promise<readonly Record<string, unknown>[]> {
    const { client } = this.runner;
    const { claim, isolation, durability } = this.request;
    const begin = isolation === undefined ? 'BEGIN' : `BEGIN ISOLATION LEVEL ${isolation}`;
    if (claim === undefined) return send(client, begin).then(() => []);
    const name = this.names.nameOf(client, claim.text);
    const steps = durability === 'window' ? [begin, WINDOW] : [begin];
    return beginWithClaim(client, steps, { ...claim, name });
  }

  #notBegun(error: unknown): unknown {
    const { claim } = this.request;
    const state = sqlState(error);
    if (claim !== undefined && state === LOCK_NOT_AVAILABLE) return claimBusy(this.owner, claim.lockTimeoutMs, error);
    // Without a state it is no answer of the server: the connection broke.
    return state === undefined || isOutageState(state) ? databaseUnavailable(this.owner, error) : error;
  }

  async #abandon(error: unknown): Promise<void> {
    this.#connection.firstError ??= error;
    if (isStalePlan(error)) this.names.forget();
    if (!this.#close()) return;
    const state = sqlState(error);
    const isBroken = IdempotencyError.is(error, 'DATABASE_UNAVAILABLE');
    const isHarmless = !isBroken && (state === undefined || HARMLESS_IN_CLAIM.has(state));
    const trouble = isHarmless ? await sendRollback(this.runner.client, ROLLBACK_PATIENCE_MS) : (error as Error);
    if (this.#becomes('rolled back')) this.#letGo(trouble);
  }

  #checkRest(piece?: Piece): void {
    if (this.phase !== 'open') throw this.#ended();
    if (this.#connection.verdict !== undefined) throw this.#connection.verdict;
    const unfinished = this.#connection.unfinishedOf(piece);
    if (unfinished !== undefined) throw queryInFlight(this.owner, unfinished);
  }

  /**
   * An un-awaited save() has not reached the connection yet when the handler's promise settles; one turn later it has. One for all pieces that end in this
   * one.
   */
  #nextTurn(go: () => void): void {
    if (this.#turn !== undefined) {
      this.#turn.push(go);
      return;
    }
    const waiting = (this.#turn = [go]);
    setImmediate(() => {
      this.#turn = undefined;
      for (const goes of waiting) goes();
    });
  }

  #faultOf(piece: Piece): unknown {
    try {
      this.#checkRest(piece);
    } catch (error) {
      return error;
    }
    return this.firstError === undefined ? undefined : transactionAborted(this.owner, this.firstError);
  }

  async #check(constraints: string): Promise<void> {
    try {
      await send(this.runner.client, constraints);
    } catch (error) {
      this.#connection.firstError ??= error;
      throw error;
    }
  }

  /** In one write, which is the dearest part of a statement. PostgreSQL answers in order: what comes from the next tells that this one is over. */
  #sendCommitAnd(next: NextTransaction): Promise<CommitOutcome> {
    const { client } = this.runner;
    if (!this.runner.mayBeFollowed || this.#connection.isStale || this.#connection.isPipelined)
      return sendCommit(client);
    client.pipeline = true;
    client.connection.stream.cork();
    try {
      const sent = sendCommit(client);
      next.opens(this.#openBehind(next.request));
      return sent;
    } finally {
      client.connection.stream.uncork();
    }
  }

  #openBehind(request: OpenRequest): Promise<OpenTransaction> {
    const transaction = new Transaction(this.setting, request, this.runner.followedBy());
    transaction.#isBehind = true;
    request.onBegin?.(transaction);
    return transaction.begin();
  }

  /** What to throw. */
  async #notCommitted(
    outcome: Exclude<CommitOutcome, { kind: 'committed' }>,
    next: NextTransaction | undefined,
  ): Promise<unknown> {
    const error = this.#endUncommitted(outcome);
    await next?.discard();
    return error;
  }

  #endUncommitted(outcome: Exclude<CommitOutcome, { kind: 'committed' }>): unknown {
    switch (outcome.kind) {
      case 'rolled back':
        this.phase = 'rolled back';
        this.#letGo();
        return transactionAborted(this.owner, this.firstError);
      case 'refused':
        this.phase = 'rolled back';
        this.#connection.firstError ??= outcome.error;
        this.#letGo(outcome.error);
        return outcome.error;
      case 'unknown': {
        const cause = this.phase === 'destroyed' ? this.firstError : outcome.error;
        this.phase = 'unknown';
        this.#letGo(outcome.error);
        return commitUnknown(this.owner, cause);
      }
    }
  }

  /** From here on no statement of the work reaches the connection. */
  #close(): boolean {
    if (this.phase !== 'open') return false;
    this.phase = 'ending';
    this.#connection.unwatch();
    this.#connection.close(() => transactionEnded(this.owner));
    return true;
  }

  /** False if somebody destroyed it meanwhile. */
  #becomes(phase: TransactionPhase): boolean {
    if (this.phase !== 'ending') return false;
    this.phase = phase;
    return true;
  }

  #ended(): Error {
    return this.#connection.refusal ?? transactionEnded(this.owner);
  }

  #letGo(trouble?: Error): void {
    if (trouble !== undefined) return this.runner.destroy(trouble);
    if (this.#connection.isStale)
      return this.runner.destroy(new Error('A prepared statement of this connection is out of date'));
    this.#connection.stopPipelining();
    return this.runner.giveBack();
  }

  /** A subscriber that throws here fails the transaction, and what it does belongs to it. */
  #ask(when: 'Before' | 'After', event: TransactionEvent): Promise<void> {
    return this.within(() => this.runner.broadcast(when, event));
  }

  /** The outcome stands already: a subscriber that throws changes nothing. It goes to TypeORM's own log, and works outside the transaction. */
  async #tell(when: 'Before' | 'After', event: TransactionEvent): Promise<void> {
    try {
      await outside(this.dataSource, () => this.runner.broadcast(when, event));
    } catch (error) {
      this.dataSource.logger.log('warn', `A subscriber failed at ${when}${event} of ${this.owner}: ${String(error)}`);
    }
  }
}
