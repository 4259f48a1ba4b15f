import type { DeliveryInProgress } from '../shared/delivery.js';
import type { SharedEnd, SharedTransaction } from '../shared/shared-transaction.js';
import type { KafkaEnd } from './record-delivery.js';

/** The Kafka transaction of several records: what their one handler has published for each of them, in their order. It begins when all have run. */
export class ExactlyOnceGroup implements SharedTransaction {
  readonly size: number;
  readonly opened = Promise.resolve();
  readonly #deliveries: readonly DeliveryInProgress[];

  constructor(
    deliveries: readonly (readonly DeliveryInProgress[])[],
    private readonly kafka: KafkaEnd,
  ) {
    this.size = deliveries.length;
    this.#deliveries = deliveries.flat();
  }

  claim(): never {
    throw new Error('there are no batch handlers of exactly-once topics');
  }

  commit(): Promise<SharedEnd> {
    return this.kafka.commit(this.#deliveries, BigInt(this.#deliveries.at(-1)!.offset) + 1n);
  }

  /** Nothing has left. */
  rollback(): Promise<void> {
    return Promise.resolve();
  }
}
