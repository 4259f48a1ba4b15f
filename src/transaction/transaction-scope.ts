import { AsyncResource } from 'node:async_hooks';
import type { DataSource, EntityManager } from 'typeorm';
import type { EmitEvent } from '../shared/events.js';
import { within } from '../shared/within.js';
import { joinDataSource, leaveDataSource } from './data-source-join.js';
import { JoinedTransaction } from './joined-transaction.js';
import type { Isolation, OpenRequest, OpenTransaction } from './open-transaction.js';
import { ownerOf } from './own-runner.js';
import { ASK_RUN, SERVER_RUN, ServerRun } from './server-run.js';
import { StandbyWaits } from './standby-waits.js';
import { StatementNames } from './statement-names.js';
import { openTransaction } from './transaction.js';
import { current, enter, outside } from './transaction-context.js';
import { barrierUnreplicated, nestedIsolation, serverRestarted, unanswered } from './transaction-errors.js';

const OWNER = 'TransactionScope.run()';
const LONGEST_MS = 20_000;
// set_config holds until this statement's own commit has been written. The message makes it a writing one: an empty transaction flushes nothing.
const BARRIER = `SELECT set_config('synchronous_commit', 'on', true), pg_logical_emit_message(true, 'nestjs-kafka-idempotency', ''), ${SERVER_RUN} AS run`;

export interface TransactionScopeOptions {
  /** Name prepared statements from their text, at most 200 per connection. Behind a pooler that cannot keep them: false. */
  readonly preparedStatements: boolean;
  readonly emit: EmitEvent;
}

interface ServerWatch {
  /** The server is seen in another run than before, after a crash or a new start. */
  readonly restarted: () => void;
  /** A commit on a connection of the pool was acknowledged without the synchronous standby. */
  readonly unreplicated: (detail: string) => void;
}

/**
 * One PostgreSQL transaction that everything using the same DataSource joins: injected repositories, `dataSource.query`, query builders, BaseEntity,
 * subscribers, and `dataSource.transaction()`, which becomes a savepoint.
 * - What joins is committed together or not at all; what comes after the end is refused, never run on another connection.
 * - An error the work catches aborts a PostgreSQL transaction all the same: the commit then fails and names it.
 * - Calls that are not awaited fail the transaction if they show before COMMIT.
 * - `dataSource.createQueryRunner()` and query builders made outside stay independent; each use inside is reported as an `escaped` event.
 */
export class TransactionScope {
  readonly #find: () => DataSource;
  #found: DataSource | undefined;
  readonly #emit: EmitEvent;
  readonly #names: StatementNames;
  readonly #server = new ServerRun();
  #unreplicated: (detail: string) => void = () => {};
  readonly #standbyWaits = new StandbyWaits((detail) => {
    this.#emit({ name: 'unreplicated', detail });
    this.#unreplicated(detail);
  });

  /** A function instead of the DataSource is asked at the first use, for whoever makes the scope before it. */
  constructor(dataSource: DataSource | (() => DataSource), options: TransactionScopeOptions) {
    this.#find = typeof dataSource === 'function' ? dataSource : () => dataSource;
    this.#emit = options.emit;
    this.#names = new StatementNames(options.preparedStatements);
  }

  get #dataSource(): DataSource {
    return (this.#found ??= this.#find());
  }

  /** @internal Lets the DataSource join. Outside a transaction nothing changes for it. */
  install(): void {
    joinDataSource(this.#dataSource, this);
    this.#standbyWaits.listen(this.#dataSource);
  }

  /** @internal */
  uninstall(): void {
    this.#standbyWaits.stop();
    leaveDataSource(this.#dataSource, this);
  }

  /** The manager of the transaction this code runs in; `undefined` outside one. */
  get active(): EntityManager | undefined {
    const transaction = current(this.#dataSource);
    return transaction === undefined || transaction.ended ? undefined : transaction.manager;
  }

  /**
   * Runs `work` in a transaction and commits it; inside one already, in a savepoint of it. An error of `work` rolls back and is thrown as it is.
   *
   * Throws what {@link OpenTransaction.commit} throws; `NESTED_ISOLATION` if an isolation level is asked for inside a transaction;
   * `DATABASE_UNAVAILABLE` if the pool gives no connection.
   */
  async run<T>(work: (manager: EntityManager) => Promise<T>, options: { isolation?: Isolation } = {}): Promise<T> {
    const outer = current(this.#dataSource);
    if (outer !== undefined) {
      if (options.isolation !== undefined) throw nestedIsolation(outer.owner, options.isolation);
      return (await outer.nested({ isolation: undefined, work })) as T;
    }
    const transaction = await this.open({ owner: OWNER, isolation: options.isolation });
    let result: T;
    try {
      result = await transaction.within(() => work(transaction.manager));
    } catch (error) {
      const blamed = transaction.blamed(error);
      await transaction.rollback();
      throw blamed;
    }
    await transaction.commit();
    return result;
  }

  /**
   * Runs `work` in a transaction that the caller opened by hand and will end by hand. Repositories join it until `work` settles; the rules of the
   * class about un-awaited calls and hand-made commits hold only for transactions opened here.
   *
   * Throws `OUTSIDE_TRANSACTION` if the manager is in no open transaction.
   */
  async join<T>(manager: EntityManager, work: () => Promise<T>): Promise<T> {
    const own = ownerOf(manager.queryRunner);
    if (own !== undefined) return enter(this.#dataSource, { transaction: own }, work);
    const transaction = new JoinedTransaction(this.#dataSource, manager, this.#emit);
    try {
      return await enter(this.#dataSource, { transaction }, work);
    } finally {
      transaction.ended = true;
    }
  }

  /** Runs `work` outside: it uses connections of its own, sees nothing uncommitted, and stays when the transaction is rolled back. */
  escape<T>(work: () => T): T {
    return outside(this.#dataSource, work);
  }

  /** @internal Calls it once the transaction this code runs in is committed, each function once. Not told of one that was joined: its opener ends it. */
  afterCommit(listener: () => void): void {
    current(this.#dataSource)?.afterCommit(listener);
  }

  /** @internal Begins a transaction, with a claim if one is asked for. Throws `CLAIM_BUSY`, `DATABASE_UNAVAILABLE`, or the driver's error. */
  open(request: OpenRequest): Promise<OpenTransaction> {
    return openTransaction(
      { dataSource: this.#dataSource, names: this.#names, server: this.#server, emit: this.#emit },
      request,
    );
  }

  /**
   * @internal A writing commit that waits for the disk: when it resolves, everything that was acknowledged before it was called is durable, also
   * transactions committed with `synchronous_commit = off` and rows that other sessions left so. Rejects also if the server has crashed since it was last
   * looked at: what was acknowledged in between may be gone, and whoever watches it has been told. With a synchronous standby it is there too then: rejects if
   * a commit meanwhile was acknowledged without it, maybe this one. `read`: also if that was read in another run of the server.
   */
  async barrier(read?: { readonly run: string }): Promise<void> {
    const { givenUp } = this.#standbyWaits;
    const run = await this.#ask(BARRIER);
    if (this.#server.told(run) === 'another' || (read !== undefined && read.run !== run)) throw serverRestarted();
    if (this.#standbyWaits.givenUp !== givenUp) throw barrierUnreplicated();
  }

  /** @internal To be awaited before the first transaction. Both are called outside of every delivery. */
  async watchServer({ restarted, unreplicated }: ServerWatch): Promise<void> {
    this.#server.watch(restarted);
    this.#unreplicated = AsyncResource.bind(unreplicated);
    this.#server.told(await this.#ask(ASK_RUN));
  }

  /** A connection that is half open would else be waited for until the system gives it up, with every offset behind it. */
  async #ask(sql: string): Promise<string> {
    const asked = outside(this.#dataSource, () => this.#dataSource.query<{ run: string }[]>(sql));
    if (!(await within(asked, LONGEST_MS))) throw unanswered(LONGEST_MS);
    const [row] = await asked;
    return row!.run;
  }
}
