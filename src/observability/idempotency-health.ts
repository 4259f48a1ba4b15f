import { Inject, Injectable } from '@nestjs/common';
import type { ConsumerProgress, HealthReport } from '../shared/consumer-progress.js';
import { CONSUMER_PROGRESS } from '../shared/tokens.js';

/** Liveness, readiness and progress per partition, for a health endpoint of any kind. */
@Injectable()
export class IdempotencyHealth {
  constructor(@Inject(CONSUMER_PROGRESS) private readonly consumer: ConsumerProgress) {}

  /** Never rejects. `ready` stays true while a handler is tried again (reason `HANDLER_RETRYING`): the other partitions go on. */
  async check(): Promise<HealthReport> {
    return this.consumer.health();
  }
}
