import type { DataSource } from 'typeorm';
import type { GatedConnection } from './gated-connection.js';
import type { OwnRunner } from './own-runner.js';
import type { Frame } from './savepoint-order.js';
import { enter, entryOf, type Joinable, type NestedRequest } from './transaction-context.js';
import { nestedEnded, nestedIsolation, sharedSavepointUndone, transactionAborted } from './transaction-errors.js';

interface Surroundings {
  readonly dataSource: DataSource;
  readonly transaction: Joinable;
  readonly runner: OwnRunner;
  readonly connection: GatedConnection;
}

/** `dataSource.transaction()` inside a transaction: a savepoint of its own, after its siblings, with a frame that tells its statements from others. */
export async function runNested(around: Surroundings, { isolation, work }: NestedRequest): Promise<unknown> {
  const { connection, runner, transaction } = around;
  if (connection.refusal !== undefined) throw connection.refusal;
  if (isolation !== undefined) throw nestedIsolation(transaction.owner, isolation);
  const parent = entryOf(transaction)?.frame ?? connection.order.innermost;
  if (parent.state !== 'open') throw nestedEnded(transaction.owner);

  const savepoint = new Savepoint(around, await connection.order.enter(parent));
  await savepoint.open();
  let result: unknown;
  try {
    result = await savepoint.within(() => work(runner.manager));
  } catch (error) {
    await savepoint.undo();
    throw error;
  }
  await savepoint.release();
  return result;
}

class Savepoint {
  readonly #depthOutside: number;

  constructor(
    private readonly around: Surroundings,
    private readonly frame: Frame,
  ) {
    this.#depthOutside = around.runner.depth;
  }

  within<T>(work: () => T): T {
    const { dataSource, transaction } = this.around;
    return enter(dataSource, { transaction, frame: this.frame }, work);
  }

  async open(): Promise<void> {
    try {
      await this.#step('startTransaction');
    } catch (error) {
      await this.undo();
      throw error;
    }
  }

  async release(): Promise<void> {
    await this.#close('released');
    try {
      await this.#step('commitTransaction');
    } catch (error) {
      if (this.#isOpen) {
        await this.undo();
        throw error;
      }
      this.#reportSubscriber('AfterTransactionCommit', error);
    }
    this.around.connection.order.leave(this.frame);
  }

  /** Whatever happens here, the error that led here is the one to be thrown; a savepoint that cannot be undone dooms the transaction. */
  async undo(): Promise<void> {
    const { connection, transaction } = this.around;
    await this.#close('rolled back');
    try {
      if (this.#isOpen) await this.#step('rollbackTransaction');
    } catch (error) {
      if (this.#isOpen) connection.doom(transactionAborted(transaction.owner, error), this.frame);
      else this.#reportSubscriber('AfterTransactionRollback', error);
    }
    if (this.frame.shared) connection.doom(sharedSavepointUndone(transaction.owner), this.frame);
    connection.order.leave(this.frame);
  }

  get #isOpen(): boolean {
    return this.around.runner.depth > this.#depthOutside;
  }

  #close(state: 'released' | 'rolled back'): Promise<void> {
    const { connection, transaction } = this.around;
    return connection.order.close(this.frame, state, () => nestedEnded(transaction.owner));
  }

  #step(step: 'startTransaction' | 'commitTransaction' | 'rollbackTransaction'): Promise<void> {
    const { dataSource, transaction, runner } = this.around;
    return enter(dataSource, { transaction, frame: this.frame, control: true }, () => runner.step(step));
  }

  #reportSubscriber(when: string, error: unknown): void {
    const { dataSource, transaction } = this.around;
    dataSource.logger.log(
      'warn',
      `A subscriber failed at ${when} in a nested transaction of ${transaction.owner}: ${String(error)}`,
    );
  }
}
