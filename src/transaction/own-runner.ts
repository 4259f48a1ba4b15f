import type { DataSource, EntityManager, QueryRunner } from 'typeorm';
import { databaseUnavailable, handMadeCommit } from './transaction-errors.js';
import { ConnectionLease } from './connection-lease.js';
import type { PgClient } from './pg-client.js';
import { outside, type Joinable, type NestedRequest } from './transaction-context.js';

const OWN = Symbol.for('nestjs-kafka-idempotency:own-runner');
const TRANSACTION = Symbol.for('nestjs-kafka-idempotency:transaction-of-runner');

/** The parts of TypeORM's PostgreSQL runner that its QueryRunner type leaves out; the same in 0.3 and 1.x. */
interface PostgresRunner extends Omit<QueryRunner, 'isTransactionActive' | 'isReleased' | 'manager' | 'broadcaster'> {
  isTransactionActive: boolean;
  transactionDepth: number;
  databaseConnection: PgClient;
  /** What it is connected through: its open runners are ended with the DataSource. */
  readonly driver: { readonly connectedQueryRunners: object[] };
  readonly manager: EntityManager;
  readonly broadcaster: Broadcaster;
  [TRANSACTION]?: RunningTransaction;
  [OWN]?: OwnRunner;
  releasePostgresConnection(error?: Error): Promise<void>;
}

interface Broadcaster {
  readonly queryRunner: PostgresRunner;
  broadcast(event: string, ...args: unknown[]): Promise<void> | undefined;
}

/** A transaction that somebody may reach by its runner, and what it wants to know or decide then. */
export interface RunningTransaction extends Joinable {
  /** Why no statement may start; `undefined` while the transaction is open. */
  readonly refusal: Error | undefined;
  /** The connection broke, or somebody released the runner by hand. It is destroyed after this. */
  lose(error: Error, isByHand: boolean): void;
  /** Somebody called commitTransaction() or rollbackTransaction() on the runner: it was not done. */
  doomedByHand(error: Error): void;
}

type SavepointStep = 'startTransaction' | 'commitTransaction' | 'rollbackTransaction';
export type TransactionEvent = 'TransactionStart' | 'TransactionCommit' | 'TransactionRollback';

/**
 * A query runner of our own, seen by TypeORM as one that is inside a transaction:
 * - when the transaction is over it says so and whose it was, before TypeORM can say "already released";
 * - its connection leaves through `giveBack` or `destroy`, once, or goes on to the next transaction; any other release is a loss;
 * - transactions are begun and ended by us, savepoints by `nested` alone.
 */
export class OwnRunner {
  readonly #runner: PostgresRunner;
  #isGone = false;
  /** The next transaction has the connection: only cutting it is left to this one, while its COMMIT is not answered. */
  #isFollowed = false;

  static async checkOut(dataSource: DataSource, owner: string): Promise<OwnRunner> {
    try {
      return new OwnRunner(dataSource, await ConnectionLease.take(dataSource));
    } catch (error) {
      throw databaseUnavailable(owner, error);
    }
  }

  private constructor(
    private readonly dataSource: DataSource,
    private readonly lease: ConnectionLease,
  ) {
    this.#runner = outside(dataSource, () => dataSource.createQueryRunner('master')) as unknown as PostgresRunner;
    lease.holder = (error) => void this.#runner.releasePostgresConnection(error);
    this.#runner.driver.connectedQueryRunners.push(this.#runner); // as connect() does, so that destroy() of the DataSource ends it
  }

  get client(): PgClient {
    return this.lease.client;
  }

  get mayBeFollowed(): boolean {
    return !this.hasSubscribers && this.lease.mayBeFollowed;
  }

  /** The runner of the next transaction on the same connection, which does not go to the pool in between. */
  followedBy(): OwnRunner {
    this.#isFollowed = true;
    this.lease.follow();
    return new OwnRunner(this.dataSource, this.lease);
  }

  get queryRunner(): QueryRunner {
    return this.#runner as unknown as QueryRunner;
  }

  get manager(): EntityManager {
    return this.#runner.manager;
  }

  get depth(): number {
    return this.#runner.transactionDepth;
  }

  /** From here on TypeORM, and whoever gets hold of the runner, works through the facade and what the transaction says. */
  takeOver(transaction: RunningTransaction, facade: PgClient): void {
    const runner = this.#runner;
    runner[TRANSACTION] = transaction;
    runner[OWN] = this;
    runner.databaseConnection = facade;
    Object.assign(runner, takenOver);
    runner.broadcaster.broadcast = broadcast;
    (runner.manager as unknown as { transaction: unknown }).transaction = transactionInside;
  }

  /** TypeORM's own words for "inside a transaction": without them save() would open and commit one of its own. */
  markBegun(): void {
    this.#runner.isTransactionActive = true;
    this.#runner.transactionDepth = 1;
  }

  /** SAVEPOINT, RELEASE or ROLLBACK TO of the current depth, with TypeORM's subscriber calls around it. */
  step(step: SavepointStep): Promise<void> {
    return original(this.#runner, step).call(this.#runner);
  }

  get hasSubscribers(): boolean {
    return this.dataSource.subscribers.length > 0;
  }

  /** Calls the subscribers as TypeORM does around BEGIN, COMMIT and ROLLBACK. */
  async broadcast(when: 'Before' | 'After', event: TransactionEvent): Promise<void> {
    await this.#runner.broadcaster.broadcast(`${when}${event}`);
  }

  /** To the pool; the server must have answered the end of the transaction. */
  giveBack(): void {
    if (this.#isGone) return;
    this.#end();
    if (!this.#isFollowed) this.lease.return();
  }

  /** Closed at once, whatever it is doing; pending queries reject. A connection that was given back is not touched. */
  destroy(error: Error): void {
    if (this.#isGone) return;
    this.#end();
    if (!this.#isFollowed) this.lease.return(error);
    this.lease.cut();
  }

  /** For TypeORM it is released from here on. */
  #end(): void {
    this.#isGone = true;
    void original(this.#runner, 'releasePostgresConnection').call(this.#runner);
  }
}

/** What stands in for the methods of a runner that was taken over: functions that all runners share, for some made for each transaction cost it a twentieth. */
const takenOver = {
  query: guarded('query'),
  stream: guarded('stream'),
  startTransaction: refusedByHand('startTransaction'),
  commitTransaction: refusedByHand('commitTransaction'),
  rollbackTransaction: refusedByHand('rollbackTransaction'),
  releasePostgresConnection(this: PostgresRunner, broken?: Error): Promise<void> {
    const error = broken ?? new Error('The query runner was released while its transaction was open');
    this[TRANSACTION]?.lose(error, broken === undefined);
    this[OWN]?.destroy(error);
    return Promise.resolve();
  },
};

/** Only subscribers are told of a statement, and TypeORM makes four promises for each to find that there is none. */
function broadcast(this: Broadcaster, event: string, ...args: unknown[]): Promise<void> | undefined {
  if (event === 'BeforeQuery' && this.queryRunner[OWN]?.hasSubscribers === false) return undefined;
  return (Object.getPrototypeOf(this) as Broadcaster).broadcast.call(this, event, ...args);
}

function guarded(name: 'query' | 'stream') {
  return function (this: PostgresRunner, ...args: unknown[]): Promise<unknown> {
    const refusal = this[TRANSACTION]?.refusal;
    if (refusal !== undefined) return Promise.reject(refusal);
    const send = original(this, name) as (...args: unknown[]) => Promise<unknown>; // overloaded; they are passed on as they come
    return send.apply(this, args);
  };
}

function refusedByHand(name: SavepointStep) {
  return function (this: PostgresRunner): Promise<never> {
    const { refusal, owner } = this[TRANSACTION]!;
    const error = refusal ?? handMadeCommit(owner, `${name}() was called on the query runner`);
    this[TRANSACTION]!.doomedByHand(error);
    return Promise.reject(error);
  };
}

function transactionInside(this: EntityManager, ...args: unknown[]): Promise<unknown> {
  return ownerOf(this.queryRunner)!.nested(nestedRequest(args));
}

/** TypeORM's own method, behind what was taken over. */
function original<Name extends SavepointStep | 'query' | 'stream' | 'releasePostgresConnection'>(
  runner: PostgresRunner,
  name: Name,
): PostgresRunner[Name] {
  return (Object.getPrototypeOf(runner) as PostgresRunner)[name];
}

/** The transaction of ours that a runner belongs to, if it does. */
export function ownerOf(runner: QueryRunner | undefined): Joinable | undefined {
  return (runner as PostgresRunner | undefined)?.[TRANSACTION];
}

/** The arguments of TypeORM's `transaction([isolation], work)`. */
export function nestedRequest(args: readonly unknown[]): NestedRequest {
  const [first, second] = args;
  return typeof first === 'function'
    ? { isolation: undefined, work: first as NestedRequest['work'] }
    : { isolation: first, work: second as NestedRequest['work'] };
}
