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

  constructor(
    @Inject(HandlerCatalogue) private readonly handlers: HandlerCatalogue,
    @Inject(Inbox) private readonly inbox: Inbox,
    @Inject(TransactionScope) private readonly scope: TransactionScope,
    @Inject(EMIT_EVENT) private readonly emit: EmitEvent,
  ) {}

  /** Looks once for constraints that are checked at COMMIT only. One that is made later is found there, by halves. */
  async open(query: (sql: string) => Promise<unknown>): Promise<void> {
    this.#constraintCheck = await constraintCheck(query);
  }

  over(
    deliveries: readonly (readonly DeliveryInProgress[])[],
    { interleaved }: { interleaved: boolean },
  ): GroupTransaction {
    const { handlers, inbox, scope, emit } = this;
    // Of handlers that run at once a check could not tell whose the violation is: COMMIT finds it, and halves find the record.
    const constraintCheck = interleaved ? undefined : this.#constraintCheck;
    return new GroupTransaction({ handlers, inbox, scope, emit, constraintCheck, interleaved }, deliveries);
  }
}
