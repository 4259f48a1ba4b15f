import { Inject, Injectable } from '@nestjs/common';
import { Inbox } from '../inbox/inbox.js';
import type { DeliveryInProgress } from '../shared/delivery.js';
import type { EmitEvent } from '../shared/events.js';
import type { SharedTransactions } from '../shared/shared-transaction.js';
import { EMIT_EVENT } from '../shared/tokens.js';
import { TransactionScope } from '../transaction/transaction-scope.js';
import { constraintCheck } from './deferred-constraints.js';
import { GroupTransaction } from './group-transaction.js';
import { HandlerCatalogue } from './handler-catalogue.js';

/** Makes the transactions that several records share. */
@Injectable()
export class GroupTransactions implements SharedTransactions {
  #constraintCheck: string | undefined;
  #readCheck: () => Promise<string | undefined> = () => Promise.resolve(undefined);

  constructor(
    @Inject(HandlerCatalogue) private readonly handlers: HandlerCatalogue,
    @Inject(Inbox) private readonly inbox: Inbox,
    @Inject(TransactionScope) private readonly scope: TransactionScope,
    @Inject(EMIT_EVENT) private readonly emit: EmitEvent,
  ) {}

  /**
   * Looks for constraints that are checked at COMMIT only: once, and again when one of them has gone. One that is made later is found at COMMIT, by halves.
   * `schemas`: of the entities.
   */
  async open(query: (sql: string, values: unknown[]) => Promise<unknown>, schemas: readonly string[]): Promise<void> {
    this.#readCheck = () => this.scope.escape(() => constraintCheck(query, schemas));
    this.#constraintCheck = await this.#readCheck();
  }

  over(
    deliveries: readonly (readonly DeliveryInProgress[])[],
    { interleaved }: { interleaved: boolean },
  ): GroupTransaction {
    const { handlers, inbox, scope, emit } = this;
    // Of handlers that run at once a check could not tell whose the violation is: COMMIT finds it, and halves find the record.
    const constraintCheck = interleaved ? undefined : this.#constraintCheck;
    const checkOutdated = () => this.#lookAgain();
    return new GroupTransaction(
      { handlers, inbox, scope, emit, constraintCheck, checkOutdated, interleaved },
      deliveries,
    );
  }

  /** Until it is known, and if it cannot be read, COMMIT is what finds a violation. */
  #lookAgain(): void {
    this.#constraintCheck = undefined;
    this.#readCheck().then(
      (check) => (this.#constraintCheck = check),
      () => undefined,
    );
  }
}
