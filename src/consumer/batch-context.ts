import { KafkaContext } from '@nestjs/microservices';
import type { Delivery } from '../shared/delivery.js';

/**
 * `@Ctx()` of an `@IdempotentBatch()` handler. It is a KafkaContext, so that interceptors and guards written for one find topic and partition, which are those of all; its
 * `getMessage()` is that of the first event of the array.
 */
export class BatchContext extends KafkaContext {
  constructor(
    args: ConstructorParameters<typeof KafkaContext>[0],
    private readonly deliveries: readonly Delivery[],
  ) {
    super(args);
  }

  /** Of each event of the array, in its order: raw key, value and headers, offset, timestamp and event id. */
  getDeliveries(): readonly Delivery[] {
    return this.deliveries;
  }
}
