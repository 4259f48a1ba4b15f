import type { DataSource, EntityManager, QueryRunner } from 'typeorm';
import { databaseUnavailable, handMadeCommit } from './transaction-errors.js';
import { requestCancel, type PgClient } from './pg-client.js';
import { outside, type Joinable, type NestedRequest } from './transaction-context.js';

const TRANSACTION = Symbol.for('nestjs-kafka-idempotency:transaction-of-runner');

/** The parts of TypeORM's PostgreSQL runner that its QueryRunner type leaves out; the same in 0.3 and 1.x. */
interface PostgresRunner extends Omit<QueryRunner, 'isTransactionActive' | 'isReleased' | 'connect' | 'manager'> {
  isTransactionActive: boolean;
  transactionDepth: number;
  databaseConnection: PgClient;
  readonly manager: EntityManager;
  [TRANSACTION]?: Joinable;
  connect(): Promise<PgClient>;
  releasePostgresConnection(error?: Error): Promise<void>;
}

/** What the transaction wants to know or decide when somebody uses its runner. */
export interface RunnerHooks {
  /** Why no statement may start; `undefined` while the transaction is open. */
  refusal(): Error | undefined;
  /** The connection broke, or somebody released the runner by hand. It is destroyed after this. */
  lost(error: Error, isByHand: boolean): void;
  /** Somebody called commitTransaction() or rollbackTransaction() on the runner: it was not done. */
  doomedByHand(error: Error): void;
}

type SavepointStep = 'startTransaction' | 'commitTransaction' | 'rollbackTransaction';
export type TransactionEvent = 'TransactionStart' | 'TransactionCommit' | 'TransactionRollback';

/**
 * A query runner of our own, seen by TypeORM as one that is inside a transaction:
 * - when the transaction is over it says so and whose it was, before TypeORM can say "already released";
 * - its client leaves through `giveBack` or `destroy`, once; any other release is a loss;
 * - transactions are begun and ended by us, savepoints by `nested` alone.
 */
export class OwnRunner {
  readonly client: PgClient;
  readonly #runner: PostgresRunner;
  readonly #release: (error?: Error) => Promise<void>;
  #isGone = false;
  readonly #steps: Record<SavepointStep, (this: PostgresRunner) => Promise<void>>;

  static async checkOut(dataSource: DataSource, owner: string): Promise<OwnRunner> {
    const runner = outside(dataSource, () => dataSource.createQueryRunner('master')) as unknown as PostgresRunner;
    try {
      return new OwnRunner(dataSource, runner, await runner.connect());
    } catch (error) {
      throw databaseUnavailable(owner, error);
    }
  }

  private constructor(
    private readonly dataSource: DataSource,
    runner: PostgresRunner,
    client: PgClient,
  ) {
    this.#runner = runner;
    this.client = client;
    this.#release = runner.releasePostgresConnection.bind(runner);
    this.#steps = {
      startTransaction: runner.startTransaction,
      commitTransaction: runner.commitTransaction,
      rollbackTransaction: runner.rollbackTransaction,
    };
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

  /** From here on TypeORM, and whoever gets hold of the runner, works through the facade and these hooks. */
  takeOver(transaction: Joinable, facade: PgClient, hooks: RunnerHooks): void {
    const runner = this.#runner;
    runner[TRANSACTION] = transaction;
    const byHand = (what: string): Promise<never> => {
      const error = hooks.refusal() ?? handMadeCommit(transaction.owner, `${what} was called on the query runner`);
      hooks.doomedByHand(error);
      return Promise.reject(error);
    };
    runner.databaseConnection = facade;
    for (const name of ['query', 'stream'] as const) {
      const send = runner[name].bind(runner) as (...args: unknown[]) => Promise<never>;
      runner[name] = (...args: unknown[]): Promise<never> => {
        const refusal = hooks.refusal();
        return refusal === undefined ? send(...args) : Promise.reject(refusal);
      };
    }
    runner.startTransaction = () => byHand('startTransaction()');
    runner.commitTransaction = () => byHand('commitTransaction()');
    runner.rollbackTransaction = () => byHand('rollbackTransaction()');
    runner.releasePostgresConnection = (broken) => {
      const error = broken ?? new Error('The query runner was released while its transaction was open');
      hooks.lost(error, broken === undefined);
      return this.destroy(error);
    };
    Object.defineProperty(runner.manager, 'transaction', {
      value: (...args: unknown[]) => transaction.nested(nestedRequest(args)),
    });
  }

  /** TypeORM's own words for "inside a transaction": without them save() would open and commit one of its own. */
  markBegun(): void {
    this.#runner.isTransactionActive = true;
    this.#runner.transactionDepth = 1;
  }

  /** SAVEPOINT, RELEASE or ROLLBACK TO of the current depth, with TypeORM's subscriber calls around it. */
  step(step: SavepointStep): Promise<void> {
    return this.#steps[step].call(this.#runner);
  }

  get hasSubscribers(): boolean {
    return this.dataSource.subscribers.length > 0;
  }

  /** Calls the subscribers as TypeORM does around BEGIN, COMMIT and ROLLBACK. */
  broadcast(when: 'Before' | 'After', event: TransactionEvent): Promise<void> {
    return this.#runner.broadcaster.broadcast(`${when}${event}`);
  }

  /** To the pool; the server must have answered the end of the transaction. */
  giveBack(): Promise<void> {
    if (this.#isGone) return Promise.resolve();
    this.#isGone = true;
    return this.#release();
  }

  /** Closed at once, whatever it is doing; pending queries reject. A connection that was given back is not touched. */
  async destroy(error: Error): Promise<void> {
    if (this.#isGone) return;
    this.#isGone = true;
    const released = this.#release(error);
    if (!this.client.readyForQuery) requestCancel(this.client);
    this.client.connection.stream.destroy();
    await released;
  }
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
