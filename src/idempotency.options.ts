import type { ConsumerConfig, KafkaConfig } from 'kafkajs';
import type { Delivery } from './shared/delivery.js';
import type { Duration } from './shared/duration.js';
import type { IdSource, RecordView } from './shared/record.js';

export type { Duration } from './shared/duration.js';

/** What a handler's deliveries keep to: the defaults of all handlers in `forRoot`, or of one handler in its decorator, which wins field by field. */
export interface HandlerOptions {
  /**
   * How long one attempt may take, from 1 ms to 24 days. Then the delivery's signal aborts, the transaction is rolled back, its connection
   * destroyed, and the attempt counted. Too short: good handlers are killed for ever. Too long: a hung one holds its partition that long.
   * It must stay below the server's `idle_in_transaction_session_timeout`, which would else end the transaction first: refused at start-up.
   * Default '30s'.
   */
  timeout?: Duration;
  /** The waiting between attempts, in place: the record stays in front of its partition, and only that partition waits. */
  retry?: {
    /**
     * Tries in place, the first included; a whole number, or Infinity. In this version it counts only for the log: a handler that fails is
     * retried for ever, and nothing is skipped.
     * Default 5.
     */
    attempts?: number;
    /** The wait after the first failed try. Very short: a failing handler keeps a core and the database busy. Default '200ms'. */
    delay?: Duration;
    /** How much longer each wait is than the one before; 1 or more. With 1 all waits are alike. Default 3. */
    factor?: number;
    /** The longest wait, at least `delay`. Long: the partition goes on that much later after the cause is gone. Default '10s'. */
    maxDelay?: Duration;
    /** `'full'` waits anything between nothing and the computed time, so that instances do not retry in step; `'none'` exactly that time. Default 'full'. */
    jitter?: 'full' | 'none';
  };
  /**
   * What an error a handler throws is: `'permanent'` never helps to try again, `'transient'` may; `undefined` leaves it to the built-in rules, and so
   * does not giving it. Not asked in this version, in which every failing handler is tried again; what is an outage of the database or the broker
   * never will be.
   */
  classify?: (error: unknown, delivery: Delivery) => 'permanent' | 'transient' | undefined;
  /**
   * What the handler gets as payload. `'json'` is strict: bytes that do not parse fail as DECODE_FAILED instead of coming as text. `'text'`
   * must be UTF-8. `'bytes'` is the Buffer. A function decodes itself, at every attempt; what it throws is DECODE_FAILED.
   * Default 'json'.
   */
  decode?: 'json' | 'text' | 'bytes' | ((record: RecordView) => unknown);
  /** Isolation level of the handler's transaction. Above the default, expect serialization failures (40001), which run again. Default 'READ COMMITTED'. */
  isolation?: 'READ COMMITTED' | 'REPEATABLE READ' | 'SERIALIZABLE';
}

/** Options of `@Idempotent()`. */
export interface IdempotentOptions extends HandlerOptions {
  /**
   * The stable name under which this handler's events are deduplicated: at most 255 bytes, no control characters, unique in the application.
   * Renaming it makes every event new again. Default 'Class.method', or refused when `consumerNames` is `'explicit'`.
   */
  consumer?: string;
  /** Where the event id comes from. Default firstOf(header('event-id'), cloudEvent()). */
  id?: IdSource;
}

/** Options of `IdempotencyModule.forRoot`. Never changed or completed in place: objects may be frozen, and kafkajs's own may be cyclic. */
export interface IdempotencyOptions extends HandlerOptions {
  kafka: {
    /**
     * kafkajs's client configuration, handed as it is to every client of ours. `brokers` has no default here; `clientId` gets the postfix.
     * `retry.restartOnFailure` is refused: a crashed consumer is always rebuilt here.
     */
    client: KafkaConfig;
    /**
     * kafkajs's consumer configuration. `groupId` has no default. maxWaitTimeInMs is the grain of resume, heartbeat and stop (kafkajs's own
     * 5000 slows a consumer that pauses to a fifth): at most a third of the session. A short session drops a consumer that a busy machine
     * delays; a long one leaves a dead consumer's partitions waiting that long. `allowAutoTopicCreation` and `retry.restartOnFailure` are refused.
     * Default { maxWaitTimeInMs: 100, rebalanceTimeout: 60000, sessionTimeout: 30000, heartbeatInterval: 3000 }.
     */
    consumer: ConsumerConfig & { groupId: string };
    subscribe?: {
      /** Where a group without a committed offset starts. With false, what was sent before the first join is never read. Default true (Nest: false). */
      fromBeginning?: boolean;
    };
    /** Appended to `groupId` and `clientId` as Nest's own transport does with `'-server'`. Changing it is changing the group. Default ''. */
    postfixId?: string;
  };
  /** TypeORM name of the one DataSource whose writes are covered. Writes through another one are not in the transaction. Default 'default'. */
  dataSource?: string;
  /** The PostgreSQL schema where our tables stand: `/^[A-Za-z_][A-Za-z0-9_]{0,62}$/`. Default the DataSource's `schema`, else current_schema(). */
  schema?: string;
  /** Prepare the statements of a handler's connection by name, 200 per connection. Behind a pooler that cannot, say false. Default true. */
  preparedStatements?: boolean;
  /**
   * How long a claim waits for another live copy of the same event (`lock_timeout`). Then the outcome is `busy`: tried again, not counted. Too
   * short: many `busy` rounds. Long: the partition stands still while another instance works.
   * Default '2s'.
   */
  claimTimeout?: Duration;
  /** `'derived'` names a handler without `consumer` after its class and method, so that a rename makes its events new again; `'explicit'` refuses it at start-up. Default 'derived'. */
  consumerNames?: 'derived' | 'explicit';
  concurrency?: {
    /** Open transactions at once. More than the pool's size less one is POOL_TOO_SMALL at start-up. Default the pool's size less two, at least 1. */
    transactions?: number;
  };
  /** Records fetched and not yet handled: above a bound fetching pauses, below half of it it resumes. Small bounds make the consumer wait for fetches. */
  buffer?: {
    /** Per partition. Default 1000. */
    records?: number;
    /** Over all partitions. One more batch per partition may come on top. Default 33554432. */
    bytes?: number;
  };
  limits?: {
    /** The largest batch accepted, after decompression; a larger one stops its partition. At least `maxBytesPerPartition`. Default 67108864. */
    batchBytes?: number;
    /** How deep a JSON payload may nest; a deeper one fails as DECODE_FAILED. Default 100. */
    jsonDepth?: number;
  };
  /**
   * How often offsets are committed while busy, from 10 ms to 5 minutes; when nothing is left to do they are at once. Long: after a crash more
   * events come again and are skipped one by one. Short: more load on the broker.
   * Default '500ms'.
   */
  commitInterval?: Duration;
  shutdown?: {
    /** How long running handlers may go on at shutdown before they are aborted. Keep it below the grace period of what stops the process. Default '25s'. */
    deadline?: Duration;
  };
}
