import type { ConsumerConfig, ICustomPartitioner, KafkaConfig } from 'kafkajs';
import type { Codec, CodecName } from './shared/codec.js';
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
     * Tries in place, the first included; a whole number, or Infinity. After the last one the event is parked and its partition goes on. With 1
     * a passing fault parks at once; with Infinity a failing event stops its partition until it succeeds. Permanent errors are parked after one
     * try whatever this says; outages, `busy` and `unknown` never count.
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
   * What an error a handler throws is: `'permanent'` is parked at once, `'transient'` is tried again; `undefined` leaves it to the built-in rules, and
   * so does not giving it. Asked first, but never about an outage of our own database or broker. Everything called permanent: a passing fault
   * parks events. Everything called transient: a poison event holds its partition through all attempts.
   */
  classify?: (error: unknown, delivery: Delivery) => 'permanent' | 'transient' | undefined;
  /**
   * Later events of a parked key wait behind it, so that the order of a key holds over parking. While one is parked, all of its key wait, for as
   * long as nobody replays or discards it; without it they overtake. Records without a key are never held.
   * Default false.
   */
  holdKey?: boolean;
  /** How a parked event comes back by itself, once its tries in place are used up. After its rounds it is dead: it waits for a person. */
  redelivery?: {
    /**
     * How often, one attempt each; a whole number, 0 for never. Without `holdKey` a round applies an old event after newer ones of its key.
     * Many rounds with a short `delay`: a poison event takes a slot again and again.
     * Default 4 with `holdKey`, else 0.
     */
    rounds?: number;
    /** The wait before the first round. Shorter than a usual outage of what the handler calls: the rounds are used up in it. Default '1m'. */
    delay?: Duration;
    /** How much longer each wait is than the one before; 1 or more. Default 6. */
    factor?: number;
    /** The longest wait, at least `delay`. Long: with `holdKey`, the key waits that much longer after the cause is gone. Default '6h'. */
    maxDelay?: Duration;
  };
  /**
   * What the handler gets as payload. `'json'` is strict: bytes that do not parse fail as DECODE_FAILED instead of coming as text. `'text'`
   * must be UTF-8. `'bytes'` is the Buffer. A function decodes itself, at every attempt; what it throws is DECODE_FAILED.
   * Default 'json'.
   */
  decode?: 'json' | 'text' | 'bytes' | ((record: RecordView) => unknown);
  /** Isolation level of the handler's transaction. Above the default, expect serialization failures (40001), which run again. Default 'READ COMMITTED'. */
  isolation?: 'READ COMMITTED' | 'REPEATABLE READ' | 'SERIALIZABLE';
  /**
   * Up to so many consecutive records of a partition that wait share one transaction, from 1 to 1000; the handler is called for each, as always. Of several handlers of
   * a topic the smallest counts. A group never waits for more records. Many: a failure rolls back more good work, which runs again, and locks are held longer. Keep the number
   * times the handler's time below `shutdown.deadline`: a shutdown waits for the group at work, and past the deadline all of it comes again.
   * In a group `now()` is the same for all, equal NOTIFYs arrive once, and SET LOCAL and advisory locks last to its end. Together with `concurrency.keys` only where
   * `concurrency.interleave` says so.
   * Default 1.
   */
  messagesPerTransaction?: number;
  /**
   * `'commit'`: each COMMIT waits until it is on disk. `'window'`: it does not (`synchronous_commit = off` for the handler's transaction alone), and one commit that does
   * precedes each commit of offsets, so that an effect that a crash of the database takes away has its record delivered again. For who reads the effects elsewhere they
   * may be gone again after such a crash, until they come back; what the handler did in other systems happens once more. Of handlers that share a transaction the
   * strictest counts. Long `commitInterval`: more comes again after a crash of the database.
   * Default 'commit'.
   */
  durability?: 'commit' | 'window';
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

/** Options of `@IdempotentBatch()`. `messagesPerTransaction` is refused here, and that of the module does not count: a batch is one transaction, and `maxSize` its bound. */
export interface IdempotentBatchOptions extends IdempotentOptions {
  /**
   * The most events in one call, from 1 to 10000, and at most `buffer.records`. Of several handlers of a topic the smallest number counts. Many: a failure rolls back more good
   * work, locks are held longer, and more memory is needed at once; `timeout` is for the whole call.
   * Default 500.
   */
  maxSize?: number;
  /**
   * How long a batch that is not full waits for more records when no more are there, from 0 to 30 seconds. A full one never waits. Long: a lone event comes that much later.
   * 0: calls are smaller, and more of them.
   * Default '50ms'.
   */
  maxWait?: Duration;
}

/** Options of `@KafkaExactlyOnce()`. Attempts, timeout, parking and decoding are those of the module. */
export interface KafkaExactlyOnceOptions {
  /** The stable name under which failures are parked, at most 255 bytes, unique in the application. Default `Class.method`. */
  consumer?: string;
  /** The most records in one Kafka transaction, from 1 to 10000. Many: what fails is repeated with more good work; few: each transaction costs some round trips. Default 500. */
  maxSize?: number;
}

/** Options of `IdempotencyModule.forRoot`. Never changed or completed in place: objects may be frozen, and kafkajs's own may be cyclic. */
export interface IdempotencyOptions extends HandlerOptions {
  kafka: {
    /**
     * kafkajs's client configuration, handed to every client of ours; each begins with another of the `brokers`, in case the first is frozen. `brokers` has no default here; `clientId` gets the postfix.
     * `retry.restartOnFailure` is refused: a crashed consumer is always rebuilt here.
     */
    client: KafkaConfig;
    /**
     * kafkajs's consumer configuration. `groupId` has no default. maxWaitTimeInMs is the grain of resume, heartbeat and stop (kafkajs's own
     * 5000 slows a consumer that pauses to a fifth): at most a third of the session. A short session drops a consumer that a busy machine
     * delays; a long one leaves a dead consumer's partitions waiting that long. Without `partitionAssigners`, members get partitions by what each of
     * them reads, and by round robin while a member is there that knows nothing else. `allowAutoTopicCreation` and `retry.restartOnFailure` are refused.
     * Default { maxWaitTimeInMs: 100, rebalanceTimeout: 60000, sessionTimeout: 30000, heartbeatInterval: 3000 }.
     */
    consumer: ConsumerConfig & { groupId: string };
    /** The producer of dead letters and replies. Idempotent, acknowledged by all replicas, one request in flight: that is fixed. */
    producer?: {
      /** `'gzip'` costs processor time and saves network and disk. Consumers of any client can read it. Default 'none'. */
      compression?: 'none' | 'gzip';
      /** kafkajs's kind of partitioner. With another one than the topic's other producers use, events of one key end in two partitions. Default Java-compatible murmur2. */
      createPartitioner?: ICustomPartitioner;
    };
    /**
     * Codecs for batches that other producers compress with snappy, lz4 or zstd; gzip is built in. What the application has registered in kafkajs's
     * `CompressionCodecs` counts too. A batch of a codec that is neither here nor there stops its partition (CODEC_MISSING).
     * Default none.
     */
    codecs?: Partial<Record<CodecName, () => Codec>>;
    subscribe?: {
      /** Where a group without a committed offset starts. With false, what was sent before the first join is never read. Default true (Nest: false). */
      fromBeginning?: boolean;
    };
    /** Appended to `groupId` and `clientId` as Nest's own transport does with `'-server'`. Changing it is changing the group. Default ''. */
    postfixId?: string;
    /**
     * When the group's offset is not in the log any more (records deleted unread, or the topic made anew): `'earliest'` goes on at the first record
     * there is, `'fail'` stops the partition and readiness until somebody sets the offset. Both tell an OFFSET_OUT_OF_RANGE.
     * Default 'earliest'.
     */
    offsetOutOfRange?: 'earliest' | 'fail';
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
    /**
     * Keys of one partition at work at once, from 1 to 1000, within `transactions`. Records of one key keep their order, and so do those without a key among
     * themselves; records of different keys do not. Many: a handler that locks rows of several keys waits for itself, and after a crash that many more events
     * may come again. 1 keeps the order of the whole partition.
     * Default 1.
     */
    keys?: number;
    /**
     * `keys` and `messagesPerTransaction` together: of the records that share a transaction, up to `keys` of different keys are at their handlers at once, on its one
     * connection, which sends statements without waiting for the answers to others; those of one key, or without one, follow one another. Row locks do not hold handlers of
     * one transaction apart, and each sees what the others have not committed yet: whoever reads a row and writes it back may lose what another key's handler wrote meanwhile.
     * Statements of different keys come in any order. One that fails makes all of the group run again, as with `messagesPerTransaction` alone. A savepoint
     * (a nested `transaction()`) keeps the others waiting until it ends; a stream, a cursor, COPY or a text of several commands makes its record run by itself.
     * Refused without both of the others, or with a handler of batches.
     * Default false.
     */
    interleave?: boolean;
  };
  /** Records fetched and not yet handled: above a bound fetching pauses, below half of it it resumes. Small bounds make the consumer wait for fetches. */
  buffer?: {
    /** Per partition. Default 1000. */
    records?: number;
    /** Over all partitions. One more batch per partition may come on top. Default 33554432. */
    bytes?: number;
  };
  limits?: {
    /**
     * The largest batch accepted, after decompression; a larger one stops its partition. At least `maxBytesPerPartition`. Large: a small batch of
     * zeros may take that much memory for each broker at once.
     * Default 67108864.
     */
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
  /** Publishes a copy of every dead event, for others; replay works on the row. Off unless given. */
  deadLetters?: {
    /** It must exist, or the start fails. Its partitions are chosen by key. Do not consume it with the handlers whose events it gets: they would go round. */
    topic: string;
    /** Also send the error's stack, up to 4096 bytes. Stacks may hold file names and values. Default false. */
    stack?: boolean;
  };
  parking?: {
    /** How often an instance looks for parked events that are due, from 10 ms to one hour. Long: they come that much later. Short: queries. Default '1s'. */
    poll?: Duration;
    /**
     * How long the row of a discarded event is kept, so that Kafka does not bring it back. Shorter than the topic's retention: a group whose
     * offset is set back runs it again. Dead rows are never deleted.
     * Default '30d'.
     */
    discarded?: Duration;
  };
  /** Events out. Given, its tables must be there at the start; else they are used if they are. */
  outbox?: {
    /** Send what is in the outbox, whichever process published it. false: this process only writes rows; another one must send them. Default true. */
    relay?: boolean;
    /** Messages read and sent at once, 1-10000. Few: slow. Many: more memory, and more sent twice after a crash. Default 500. */
    batch?: number;
    /** How often the outbox is looked at without being told of a commit, from 10 ms to one hour. Long: what others published comes that much later. Default '1s'. */
    poll?: Duration;
    /** After this long another relay takes over from one that has died, from one second to one hour. Short: a pause of the process costs it the shards. Default '15s'. */
    lease?: Duration;
    /** Failed attempts until a message that Kafka does not take is parked alone. An outage is no attempt. Default 10. */
    attempts?: number;
    /** The largest message publish() takes: key, value and headers. Above the topic's max.message.bytes it would be parked later. Default 1000000. */
    maxBytes?: number;
    /** How long a dedupeKey is remembered. Shorter than a producer may come back with the same input: it publishes again. Default '14d'. */
    dedupeRetention?: Duration;
  };
  shutdown?: {
    /** How long running handlers may go on at shutdown before they are aborted. Keep it below the grace period of what stops the process. Default '25s'. */
    deadline?: Duration;
  };
}
