// Set up
export { IdempotencyModule, type IdempotencyAsyncOptions } from './idempotency.module.js';
export type {
  HandlerOptions,
  IdempotencyOptions,
  IdempotentBatchOptions,
  IdempotentOptions,
  KafkaExactlyOnceOptions,
} from './idempotency.options.js';
export type { Codec, CodecName } from './shared/codec.js';
export type { Duration } from './shared/duration.js';

// Consume
export { IdempotentKafkaServer } from './consumer/idempotent-kafka.server.js';
export { decodeJson } from './consumer/decode.js';
export { Idempotent } from './handler/idempotent.decorator.js';
export { IdempotentBatch } from './handler/idempotent-batch.decorator.js';
export { KafkaExactlyOnce } from './handler/kafka-exactly-once.decorator.js';
export { BatchContext } from './consumer/batch-context.js';
export { Signal } from './handler/signal.decorator.js';
export { currentDelivery, type Delivery, type Outcome } from './shared/delivery.js';
export type { IdSource, RecordView } from './shared/record.js';
export { cloudEvent } from './handler/identity/cloud-event.js';
export { firstOf, join } from './handler/identity/compose.js';
export { debezium, header } from './handler/identity/header.js';
export { payload } from './handler/identity/payload.js';
export { contentHash, position, recordKey } from './handler/identity/record-parts.js';

// Emit
export { TransactionScope } from './transaction/transaction-scope.js';
export { EventPublisher, type Published } from './outbox/event-publisher.js';
export type { PublishOptions } from './outbox/encoded-message.js';
export type { Isolation } from './transaction/open-transaction.js';

// Operate
export { IdempotencyHealth } from './observability/idempotency-health.js';
export { IdempotencyEvents } from './observability/idempotency-events.js';
export type { HealthReason, HealthReport, PartitionProgress } from './shared/consumer-progress.js';
export { Outbox, type OutboxStats } from './outbox/outbox.js';
export { ParkedEvents } from './parking/parked-events.js';
export type { ParkedEvent, ParkedHistoryEntry } from './parking/parked-event.js';
export type { ParkedFilter } from './parking/parked-filter.js';
export type { FailedAttempt, ParkedState, ParkReason } from './shared/parking.js';
export type { EventName, EventPlace, IdempotencyEvent } from './shared/events.js';

// Errors
export {
  BatchItemError,
  IdempotencyError,
  NonRetryableError,
  type ErrorCode,
  type ErrorFacts,
} from './shared/errors.js';
