import type { DataSource, EntityManager, QueryRunner } from 'typeorm';
import type { EmitEvent } from '../shared/events.js';
import { outside, type Joinable, type NestedRequest } from './transaction-context.js';
import { nestedIsolation, outsideTransaction, transactionEnded } from './transaction-errors.js';

/** A transaction that the caller of `join` opened and will end. Only its boundaries are ours: after `end()` nothing joins it any more. */
export class JoinedTransaction implements Joinable {
  readonly owner = 'TransactionScope.join()';
  ended = false;
  #late: QueryRunner | undefined;

  constructor(
    private readonly dataSource: DataSource,
    readonly manager: EntityManager,
    readonly emit: EmitEvent,
  ) {
    const { queryRunner } = manager;
    if (queryRunner === undefined) throw outsideTransaction('without a query runner of its own');
    if (queryRunner.isReleased || !queryRunner.isTransactionActive)
      throw outsideTransaction('that is in no open transaction');
  }

  get queryRunner(): QueryRunner {
    if (this.ended) return (this.#late ??= refusingRunner(this.dataSource, transactionEnded(this.owner)));
    return this.manager.queryRunner as QueryRunner;
  }

  nested({ isolation, work }: NestedRequest): Promise<unknown> {
    if (this.ended) return Promise.reject(transactionEnded(this.owner));
    if (isolation !== undefined) return Promise.reject(nestedIsolation(this.owner, isolation));
    return this.manager.transaction(work);
  }

  /** Its end is the caller's, and is not heard of. */
  afterCommit(): void {}
}

/** A runner that never gets a connection. */
function refusingRunner(dataSource: DataSource, error: Error): QueryRunner {
  const runner = outside(dataSource, () => dataSource.createQueryRunner());
  runner.connect = () => Promise.reject(error);
  return runner;
}
