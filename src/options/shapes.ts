import { show } from './fault.js';
import * as rules from './rules.js';
import { Group, Option } from './rules.js';

// The longest wait a Node timer can hold is 2^31-1 ms, 24.8 days; a longer one fires at once.
const LONGEST = '24d';
// What only PostgreSQL counts may be longer.
const LONGEST_STORED = '10y';
const SCHEMA_NAME = /^[A-Za-z_][A-Za-z0-9_]{0,62}$/;
// Kafka's own rule; it also keeps names that begin with two underscores to itself.
const TOPIC_NAME = /^(?!\.{1,2}$|__)[A-Za-z0-9._-]{1,249}$/;
const CONSUMER_NAME_BYTES = 255;
const LOG_LEVELS: readonly unknown[] = [0, 1, 2, 4, 5];

class RetryShape {
  @Option(rules.whole(1, Infinity)) attempts?: unknown;
  @Option(rules.duration('1ms', LONGEST, '200ms')) delay?: unknown;
  @Option(rules.amount(1)) factor?: unknown;
  @Option(rules.duration('1ms', LONGEST, '10s')) maxDelay?: unknown;
  @Option(rules.oneOf('full', 'none')) jitter?: unknown;
}

class RedeliveryShape {
  @Option(rules.whole(0)) rounds?: unknown;
  @Option(rules.duration('1ms', LONGEST_STORED, '1m')) delay?: unknown;
  @Option(rules.amount(1)) factor?: unknown;
  @Option(rules.duration('1ms', LONGEST_STORED, '6h')) maxDelay?: unknown;
}

class HandlerShape {
  @Option(rules.duration('1ms', LONGEST, '30s')) timeout?: unknown;
  @Group(RetryShape, { remedy: "Give an object such as { delay: '200ms', maxDelay: '10s' }." }) retry?: unknown;
  @Option(
    rules.callback("Give a function of the error and the delivery that answers 'permanent', 'transient' or undefined."),
  )
  classify?: unknown;
  @Option(rules.flag) holdKey?: unknown;
  @Group(RedeliveryShape, { remedy: "Give an object such as { rounds: 4, delay: '1m' }." }) redelivery?: unknown;
  @Option({
    accepts: (value) => typeof value === 'function' || rules.oneOf('json', 'text', 'bytes').accepts(value),
    remedy: "Give one of 'json', 'text', 'bytes', or a function of the record.",
  })
  decode?: unknown;
  @Option(rules.oneOf('READ COMMITTED', 'REPEATABLE READ', 'SERIALIZABLE')) isolation?: unknown;
  @Option(rules.wholeUpTo(1, 1000)) messagesPerTransaction?: unknown;
  @Option(rules.oneOf('commit', 'window')) durability?: unknown;
}

class KafkajsRetryShape {
  @Option(rules.milliseconds(0)) maxRetryTime?: unknown;
  @Option(rules.milliseconds(0)) initialRetryTime?: unknown;
  @Option(rules.amount(0)) factor?: unknown;
  @Option(rules.amount(0)) multiplier?: unknown;
  @Option(rules.whole(0, Infinity)) retries?: unknown;
}

const KAFKAJS_RETRY = { remedy: 'Give an object such as { retries: 5, initialRetryTime: 300 }.' };

/** kafkajs's KafkaConfig. Names and kinds only; what stands in `ssl`, `sasl` and the callbacks is kafkajs's to judge. */
export class ClientShape {
  @Option({
    accepts: (value) => typeof value === 'function' || (isFilledArray(value) && wrongBroker(value) === undefined),
    remedy: brokersRemedy,
    required: true,
  })
  brokers?: unknown;
  @Option({
    accepts: (value) => typeof value === 'boolean' || rules.isOptionsObject(value),
    remedy: 'Give true, false, or an object of tls.connect() options.',
  })
  ssl?: unknown;
  @Option({
    accepts: rules.isOptionsObject,
    remedy: "Give an object such as { mechanism: 'plain', username, password }.",
  })
  sasl?: unknown;
  @Option(rules.text('Give a name, or leave it out.')) clientId?: unknown;
  @Option(rules.milliseconds(1)) connectionTimeout?: unknown;
  @Option(rules.milliseconds(1)) authenticationTimeout?: unknown;
  @Option(rules.milliseconds(0)) reauthenticationThreshold?: unknown;
  @Option(rules.milliseconds(1)) requestTimeout?: unknown;
  @Option(rules.flag) enforceRequestTimeout?: unknown;
  @Group(KafkajsRetryShape, KAFKAJS_RETRY) retry?: unknown;
  @Option(rules.callback('Give a function that makes a socket.')) socketFactory?: unknown;
  @Option({
    accepts: (value) => LOG_LEVELS.includes(value),
    remedy: 'Give a logLevel of kafkajs: 0 (NOTHING), 1 (ERROR), 2 (WARN), 4 (INFO) or 5 (DEBUG).',
  })
  logLevel?: unknown;
  @Option(rules.callback('Give a function of the level that answers a function of the entry.')) logCreator?: unknown;
}

/** kafkajs's ConsumerConfig, less what this package decides. */
export class ConsumerShape {
  @Option({ ...rules.text("Give the consumer group's name, for example 'billing'."), required: true })
  groupId?: unknown;
  @Option({
    accepts: (value) => isFilledArray(value) && value.every((assigner) => typeof assigner === 'function'),
    remedy: 'Give an array of assigner functions, or leave it out.',
  })
  partitionAssigners?: unknown;
  @Option(rules.milliseconds(0)) metadataMaxAge?: unknown;
  @Option(rules.milliseconds(1)) sessionTimeout?: unknown;
  @Option(rules.milliseconds(1)) rebalanceTimeout?: unknown;
  @Option(rules.milliseconds(1)) heartbeatInterval?: unknown;
  @Option(rules.whole(1)) maxBytesPerPartition?: unknown;
  @Option(rules.whole(1)) minBytes?: unknown;
  @Option(rules.whole(1)) maxBytes?: unknown;
  @Option(rules.milliseconds(1)) maxWaitTimeInMs?: unknown;
  @Group(KafkajsRetryShape, KAFKAJS_RETRY) retry?: unknown;
  @Option(rules.whole(1)) maxInFlightRequests?: unknown;
  @Option(rules.flag) readUncommitted?: unknown;
  @Option({ accepts: (value) => typeof value === 'string', remedy: 'Give the rack as a string, or leave it out.' })
  rackId?: unknown;
}

class ProducerShape {
  @Option(rules.oneOf('none', 'gzip')) compression?: unknown;
  @Option(
    rules.callback(
      'Give a partitioner of kafkajs: a function that answers a function of { topic, partitionMetadata, message }.',
    ),
  )
  createPartitioner?: unknown;
}

const CODEC = rules.callback('Give a function that answers { decompress }, as kafkajs codec packages export it.');

/** `kafka.codecs`, by the names Kafka gives them. */
export class CodecsShape {
  @Option(CODEC) snappy?: unknown;
  @Option(CODEC) lz4?: unknown;
  @Option(CODEC) zstd?: unknown;
}

class SubscribeShape {
  @Option(rules.flag) fromBeginning?: unknown;
}

class KafkaShape {
  @Group(ClientShape, {
    required: true,
    remedy: "Give kafkajs's client configuration, for example { clientId: 'billing', brokers: ['localhost:9092'] }.",
  })
  client?: unknown;
  @Group(ConsumerShape, {
    required: true,
    remedy: "Give kafkajs's consumer configuration, at least { groupId: 'billing' }.",
  })
  consumer?: unknown;
  @Group(ProducerShape, { remedy: "Give an object such as { compression: 'gzip' }." }) producer?: unknown;
  @Group(CodecsShape, { remedy: 'Give an object such as { snappy: SnappyCodec }.' }) codecs?: unknown;
  @Group(SubscribeShape, { remedy: 'Give { fromBeginning: true } or { fromBeginning: false }.' }) subscribe?: unknown;
  @Option({
    accepts: (value) => value === '' || rules.isText(value),
    remedy: "Give a string such as '-server', or '' for none.",
  })
  postfixId?: unknown;
  @Option(rules.oneOf('earliest', 'fail')) offsetOutOfRange?: unknown;
}

class ConcurrencyShape {
  @Option(rules.whole(1)) transactions?: unknown;
  @Option(rules.wholeUpTo(1, 1000)) keys?: unknown;
  @Option(rules.flag) interleave?: unknown;
}

class BufferShape {
  @Option(rules.whole(1)) records?: unknown;
  @Option(rules.whole(1)) bytes?: unknown;
}

class LimitsShape {
  @Option(rules.whole(1)) batchBytes?: unknown;
  @Option(rules.whole(1)) jsonDepth?: unknown;
}

class DeadLettersShape {
  @Option({
    accepts: (value) => typeof value === 'string' && TOPIC_NAME.test(value),
    remedy: "Give the name of a topic that exists, for example 'billing.dead'.",
    required: true,
  })
  topic?: unknown;
  @Option(rules.flag) stack?: unknown;
}

class ParkingShape {
  @Option(rules.duration('10ms', '1h', '1s')) poll?: unknown;
  @Option(rules.duration('1ms', LONGEST_STORED, '30d')) discarded?: unknown;
}

class OutboxShape {
  @Option(rules.flag) relay?: unknown;
  @Option(rules.wholeUpTo(1, 10_000)) batch?: unknown;
  @Option(rules.duration('10ms', '1h', '1s')) poll?: unknown;
  @Option(rules.duration('1s', '1h', '15s')) lease?: unknown;
  @Option(rules.whole(1)) attempts?: unknown;
  @Option(rules.wholeUpTo(1, 100_000_000)) maxBytes?: unknown;
  @Option(rules.duration('1s', LONGEST_STORED, '14d')) dedupeRetention?: unknown;
}

class ShutdownShape {
  @Option(rules.duration('1ms', LONGEST, '25s')) deadline?: unknown;
}

/** What `IdempotencyModule.forRoot` knows. */
export class ModuleShape extends HandlerShape {
  @Group(KafkaShape, { required: true, remedy: 'Give { client: { brokers }, consumer: { groupId } }.' })
  kafka?: unknown;
  @Option(rules.text("Give the DataSource's name in TypeOrmModule, a string.")) dataSource?: unknown;
  @Option({
    accepts: (value) => typeof value === 'string' && SCHEMA_NAME.test(value),
    remedy: `Give an unquoted schema name: ${String(SCHEMA_NAME)}.`,
  })
  schema?: unknown;
  @Option(rules.flag) preparedStatements?: unknown;
  @Option(rules.duration('1ms', LONGEST, '2s')) claimTimeout?: unknown;
  @Option(rules.oneOf('derived', 'explicit')) consumerNames?: unknown;
  @Group(ConcurrencyShape, { remedy: 'Give an object such as { transactions: 8 }.' }) concurrency?: unknown;
  @Group(BufferShape, { remedy: 'Give an object such as { records: 1000 }.' }) buffer?: unknown;
  @Group(LimitsShape, { remedy: 'Give an object such as { jsonDepth: 100 }.' }) limits?: unknown;
  @Option(rules.duration('10ms', '5m', '500ms')) commitInterval?: unknown;
  @Group(DeadLettersShape, { remedy: "Give an object such as { topic: 'billing.dead' }." }) deadLetters?: unknown;
  @Group(ParkingShape, { remedy: "Give an object such as { poll: '1s' }." }) parking?: unknown;
  @Group(OutboxShape, { remedy: 'Give an object such as { relay: true, batch: 500 }.' }) outbox?: unknown;
  @Group(ShutdownShape, { remedy: "Give an object such as { deadline: '25s' }." }) shutdown?: unknown;
}

const CONSUMER_NAME: rules.Rule = {
  accepts: (value) => rules.isText(value) && Buffer.byteLength(value) <= CONSUMER_NAME_BYTES,
  remedy: `Give a name of 1 to ${String(CONSUMER_NAME_BYTES)} bytes without control characters, for example 'billing.charge'.`,
};

/** What `@Idempotent()` knows. */
export class IdempotentShape extends HandlerShape {
  @Option(CONSUMER_NAME) consumer?: unknown;
  @Option(rules.callback("Give a source such as header('event-id'), or a function of the record.")) id?: unknown;
}

/** What `@IdempotentBatch()` knows. */
export class IdempotentBatchShape extends IdempotentShape {
  @Option(rules.wholeUpTo(1, 10_000)) maxSize?: unknown;
  @Option(rules.duration(0, '30s', '50ms')) maxWait?: unknown;
}

/** What `@KafkaExactlyOnce()` knows. */
export class ExactlyOnceShape {
  @Option(CONSUMER_NAME) consumer?: unknown;
  @Option(rules.wholeUpTo(1, 10_000)) maxSize?: unknown;
}

function isFilledArray(value: unknown): value is unknown[] {
  return Array.isArray(value) && value.length > 0;
}

/** Index of the first broker kafkajs cannot connect to: it splits at ':', so a URL, an IPv6 address and a missing port all fail there. */
function wrongBroker(brokers: readonly unknown[]): number | undefined {
  const index = brokers.findIndex((broker) => typeof broker !== 'string' || !/^[^\s:/@]+:[1-9]\d{0,4}$/.test(broker));
  return index === -1 ? undefined : index;
}

function brokersRemedy(value: unknown): string {
  const wrong = isFilledArray(value) ? wrongBroker(value) : undefined;
  const remedy = "Give an array of 'host:port', for example ['localhost:9092'], or a function that answers one.";
  return wrong === undefined
    ? remedy
    : `brokers[${String(wrong)}] is ${show('', (value as unknown[])[wrong])}. ${remedy}`;
}
