import { DeliveryInProgress } from './delivery.js';
import type { IdempotencyError } from './errors.js';
import type { SharedTransaction } from './shared-transaction.js';

/**
 * The one call of a batch handler for several records, each of which has a delivery of its own beside it. Once it is claimed, only those whose events are to run are in
 * it, and what it says of a record is of the first of them.
 */
export class BatchDelivery extends DeliveryInProgress {
  #members: readonly DeliveryInProgress[];
  #isClaimed = false;

  /** `all`: of consecutive records, for one consumer. At least one. */
  constructor(
    readonly all: readonly DeliveryInProgress[],
    override readonly shared: SharedTransaction,
  ) {
    super(all[0]!, all[0]!.consumer, 1);
    this.#members = all;
  }

  override get members(): readonly DeliveryInProgress[] {
    return this.#members;
  }

  get isClaimed(): boolean {
    return this.#isClaimed;
  }

  /** Gives those whose events are to run. Throws what went wrong with the transaction, and has reported it then. */
  async claim(): Promise<readonly DeliveryInProgress[]> {
    const fresh = await this.shared.claim(this);
    this.#members = fresh;
    this.#isClaimed = true;
    const [first] = fresh;
    if (first !== undefined) {
      this.eventId = first.eventId;
      this.standFor(first);
    }
    return fresh;
  }

  override abort(reason: IdempotencyError): void {
    super.abort(reason);
    for (const one of this.#members) one.abort(reason);
  }
}
