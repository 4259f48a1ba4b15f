import type { ConsumerConfig, ICustomPartitioner, KafkaConfig } from 'kafkajs';
import type { HandlerOptions, IdempotencyOptions, IdempotentBatchOptions } from '../idempotency.options.js';
import type { Codec, CodecName } from '../shared/codec.js';
import { type Duration, durationMs } from '../shared/duration.js';
import type { RedeliverySettings } from '../shared/parking.js';
import { maxDelayBelowDelay, type Waits } from './contradictions.js';
import { DEFAULT_ROUNDS, DEFAULTS } from './defaults.js';
import { type Fault, optionsInvalid } from './fault.js';
import { readOptions } from './read.js';
import { optionsOf, type Shape } from './rules.js';
import { ClientShape, CodecsShape, ConsumerShape } from './shapes.js';

/** Handler options with nothing left open. */
export interface ResolvedHandlerOptions {
  readonly timeoutMs: number;
  readonly retry: ResolvedRetry;
  readonly holdKey: boolean;
  readonly redelivery: RedeliverySettings;
  readonly classify: HandlerOptions['classify'];
  readonly decode: NonNullable<HandlerOptions['decode']>;
  readonly isolation: NonNullable<HandlerOptions['isolation']>;
  readonly messagesPerTransaction: number;
  readonly durability: NonNullable<HandlerOptions['durability']>;
}

export interface ResolvedRetry {
  readonly attempts: number;
  readonly delayMs: number;
  readonly factor: number;
  readonly maxDelayMs: number;
  readonly jitter: 'full' | 'none';
}

/** The module's handler options: `rounds` stays open if not given, for its default depends on each handler's `holdKey`. */
export interface HandlerDefaults extends Omit<ResolvedHandlerOptions, 'redelivery'> {
  readonly redelivery: Omit<RedeliverySettings, 'rounds'> & { readonly rounds: number | undefined };
}

/** The module's options with nothing left open but what only the database or a handler can tell: `schema`, `concurrency.transactions`, `redelivery.rounds`. */
export interface ResolvedOptions extends HandlerDefaults {
  readonly kafka: ResolvedKafka;
  readonly dataSource: string;
  readonly schema: string | undefined;
  readonly preparedStatements: boolean;
  readonly claimTimeoutMs: number;
  readonly consumerNames: 'derived' | 'explicit';
  readonly concurrency: {
    readonly transactions: number | undefined;
    readonly keys: number;
    readonly interleave: boolean;
  };
  readonly buffer: { readonly records: number; readonly bytes: number };
  readonly limits: { readonly batchBytes: number; readonly jsonDepth: number };
  readonly commitIntervalMs: number;
  /** undefined: dead events stay in the table alone. */
  readonly deadLetters: { readonly topic: string; readonly stack: boolean } | undefined;
  readonly parking: { readonly pollMs: number; readonly discardedMs: number };
  readonly outbox: ResolvedOutbox;
  readonly shutdownDeadlineMs: number;
}

export interface ResolvedOutbox {
  /** The option was given, so its tables must be there. */
  readonly isNeeded: boolean;
  readonly relay: boolean;
  readonly batch: number;
  readonly pollMs: number;
  readonly leaseMs: number;
  readonly attempts: number;
  readonly maxBytes: number;
  readonly dedupeRetentionMs: number;
}

export interface ResolvedKafka {
  /** For `new Kafka()`: the user's values by reference, `clientId` with the postfix. */
  readonly client: KafkaConfig;
  /** For `kafka.consumer()`: our defaults, the user's values by reference, `groupId` with the postfix, no topic creation. */
  readonly consumer: ResolvedConsumer;
  readonly producer: ResolvedProducer;
  readonly codecs: Readonly<Partial<Record<CodecName, () => Codec>>>;
  readonly fromBeginning: boolean;
  readonly offsetOutOfRange: 'earliest' | 'fail';
  readonly postfixId: string;
  readonly groupId: string;
  /** undefined: not given, and kafkajs's own is used without a postfix. */
  readonly clientId: string | undefined;
}

export interface ResolvedProducer {
  readonly compression: 'none' | 'gzip';
  /** undefined: Java-compatible murmur2. */
  readonly createPartitioner: ICustomPartitioner | undefined;
}

export type ResolvedConsumer = ConsumerConfig &
  Required<Pick<ConsumerConfig, keyof typeof DEFAULTS.kafka.consumer | 'allowAutoTopicCreation'>>;

const MODULE = ' (of the module)';

/** The whole of the module's options: defaults filled in, durations in milliseconds. Takes what checkOptions let pass; changes nothing of it. */
export function resolveOptions(options: IdempotencyOptions): ResolvedOptions {
  return {
    ...mergeHandlerOptions(handlerDefaults(), options),
    kafka: resolveKafka(options.kafka),
    dataSource: options.dataSource ?? DEFAULTS.dataSource,
    schema: options.schema,
    preparedStatements: options.preparedStatements ?? DEFAULTS.preparedStatements,
    claimTimeoutMs: millis(options.claimTimeout ?? DEFAULTS.claimTimeout),
    consumerNames: options.consumerNames ?? DEFAULTS.consumerNames,
    concurrency: {
      transactions: options.concurrency?.transactions,
      keys: options.concurrency?.keys ?? DEFAULTS.concurrency.keys,
      interleave: options.concurrency?.interleave ?? DEFAULTS.concurrency.interleave,
    },
    buffer: {
      records: options.buffer?.records ?? DEFAULTS.buffer.records,
      bytes: options.buffer?.bytes ?? DEFAULTS.buffer.bytes,
    },
    limits: {
      batchBytes: options.limits?.batchBytes ?? DEFAULTS.limits.batchBytes,
      jsonDepth: options.limits?.jsonDepth ?? DEFAULTS.limits.jsonDepth,
    },
    commitIntervalMs: millis(options.commitInterval ?? DEFAULTS.commitInterval),
    deadLetters: options.deadLetters && {
      topic: options.deadLetters.topic,
      stack: options.deadLetters.stack ?? DEFAULTS.deadLetters.stack,
    },
    parking: {
      pollMs: millis(options.parking?.poll ?? DEFAULTS.parking.poll),
      discardedMs: millis(options.parking?.discarded ?? DEFAULTS.parking.discarded),
    },
    outbox: resolveOutbox(options.outbox),
    shutdownDeadlineMs: millis(options.shutdown?.deadline ?? DEFAULTS.shutdown.deadline),
  };
}

/**
 * One handler's options: what its decorator gives, else what the module says, `retry` and `redelivery` field by field. Throws OPTIONS_INVALID when the two
 * contradict each other only together; `where` is how the error calls the decorator.
 */
export function resolveHandlerOptions(
  module: HandlerDefaults,
  decorator: HandlerOptions = {},
  where = '@Idempotent()',
): ResolvedHandlerOptions {
  const merged = mergeHandlerOptions(module, decorator);
  const faults = [...waitFaults('retry', merged, decorator), ...waitFaults('redelivery', merged, decorator)];
  if (faults.length > 0) throw optionsInvalid(where, faults);
  const rounds = merged.redelivery.rounds ?? (merged.holdKey ? DEFAULT_ROUNDS.holdingKeys : DEFAULT_ROUNDS.else);
  return { ...merged, redelivery: { ...merged.redelivery, rounds } };
}

/** What only `@IdempotentBatch()` has. */
export function resolveBatchOptions({ maxSize, maxWait }: IdempotentBatchOptions): {
  maxSize: number;
  maxWaitMs: number;
} {
  return { maxSize: maxSize ?? DEFAULTS.batch.maxSize, maxWaitMs: millis(maxWait ?? DEFAULTS.batch.maxWait) };
}

/** Names as Nest's transports make them: the postfix right behind. A name not given stays so. */
export function withPostfix<Name extends string | undefined>(name: Name, postfixId: string): Name {
  return (name === undefined ? name : `${name}${postfixId}`) as Name;
}

function waitFaults(group: Waits, merged: HandlerDefaults, decorator: HandlerOptions): Fault[] {
  const { delay, maxDelay } = decorator[group] ?? {};
  const fault = maxDelayBelowDelay(
    group,
    { maxDelay: maxDelay ?? merged[group].maxDelayMs, delay: delay ?? merged[group].delayMs },
    { maxDelay: maxDelay === undefined ? MODULE : '', delay: delay === undefined ? MODULE : '' },
  );
  return fault === undefined ? [] : [fault];
}

function handlerDefaults(): HandlerDefaults {
  const { timeout, retry, holdKey, redelivery, decode, isolation, messagesPerTransaction, durability } = DEFAULTS;
  const { delay, maxDelay, ...rest } = retry;
  return {
    timeoutMs: millis(timeout),
    retry: { ...rest, delayMs: millis(delay), maxDelayMs: millis(maxDelay) },
    holdKey,
    redelivery: {
      rounds: undefined,
      delayMs: millis(redelivery.delay),
      factor: redelivery.factor,
      maxDelayMs: millis(redelivery.maxDelay),
      jitter: 'none',
    },
    classify: undefined,
    decode,
    isolation,
    messagesPerTransaction,
    durability,
  };
}

function mergeHandlerOptions(base: HandlerDefaults, given: HandlerOptions): HandlerDefaults {
  const { timeout, retry, classify, holdKey, redelivery, decode, isolation, messagesPerTransaction, durability } =
    given;
  return {
    timeoutMs: timeout === undefined ? base.timeoutMs : millis(timeout),
    retry: {
      attempts: retry?.attempts ?? base.retry.attempts,
      delayMs: retry?.delay === undefined ? base.retry.delayMs : millis(retry.delay),
      factor: retry?.factor ?? base.retry.factor,
      maxDelayMs: retry?.maxDelay === undefined ? base.retry.maxDelayMs : millis(retry.maxDelay),
      jitter: retry?.jitter ?? base.retry.jitter,
    },
    holdKey: holdKey ?? base.holdKey,
    redelivery: {
      rounds: redelivery?.rounds ?? base.redelivery.rounds,
      delayMs: redelivery?.delay === undefined ? base.redelivery.delayMs : millis(redelivery.delay),
      factor: redelivery?.factor ?? base.redelivery.factor,
      maxDelayMs: redelivery?.maxDelay === undefined ? base.redelivery.maxDelayMs : millis(redelivery.maxDelay),
      jitter: base.redelivery.jitter,
    },
    // Bound, because options may be an instance of a class whose methods use `this`.
    classify: classify?.bind(given) ?? base.classify,
    decode: (typeof decode === 'function' ? decode.bind(given) : decode) ?? base.decode,
    isolation: isolation ?? base.isolation,
    messagesPerTransaction: messagesPerTransaction ?? base.messagesPerTransaction,
    durability: durability ?? base.durability,
  };
}

function resolveKafka(kafka: IdempotencyOptions['kafka']): ResolvedKafka {
  const postfixId = kafka.postfixId ?? DEFAULTS.kafka.postfixId;
  const groupId = withPostfix(kafka.consumer.groupId, postfixId);
  const clientId = withPostfix(kafka.client.clientId, postfixId);
  const client = { ...given(kafka.client, ClientShape), ...(clientId === undefined ? {} : { clientId }) };
  const consumer = {
    ...DEFAULTS.kafka.consumer,
    ...given(kafka.consumer, ConsumerShape),
    groupId,
    allowAutoTopicCreation: false,
  };
  return {
    client,
    consumer,
    producer: {
      compression: kafka.producer?.compression ?? DEFAULTS.kafka.producer.compression,
      createPartitioner: kafka.producer?.createPartitioner,
    },
    codecs: kafka.codecs === undefined ? {} : given(kafka.codecs, CodecsShape),
    offsetOutOfRange: kafka.offsetOutOfRange ?? DEFAULTS.kafka.offsetOutOfRange,
    fromBeginning: kafka.subscribe?.fromBeginning ?? DEFAULTS.kafka.subscribe.fromBeginning,
    postfixId,
    groupId,
    clientId,
  };
}

function resolveOutbox(outbox: IdempotencyOptions['outbox']): ResolvedOutbox {
  const otherwise = DEFAULTS.outbox;
  return {
    isNeeded: outbox !== undefined,
    relay: outbox?.relay ?? otherwise.relay,
    batch: outbox?.batch ?? otherwise.batch,
    pollMs: millis(outbox?.poll ?? otherwise.poll),
    leaseMs: millis(outbox?.lease ?? otherwise.lease),
    attempts: outbox?.attempts ?? otherwise.attempts,
    maxBytes: outbox?.maxBytes ?? otherwise.maxBytes,
    dedupeRetentionMs: millis(outbox?.dedupeRetention ?? otherwise.dedupeRetention),
  };
}

/** A new object with the options given, inherited ones and getters included: a spread would lose them, and let `undefined` win over a default. */
function given<Config extends object>(config: Config, shape: Shape): Config {
  return Object.fromEntries(readOptions(config, optionsOf(shape).keys())) as Config;
}

/** Whole milliseconds: PostgreSQL and timers know no parts of one. */
function millis(duration: Duration): number {
  const ms = durationMs(duration);
  if (ms === undefined) throw new RangeError(`${String(duration)} is not a duration`);
  return Math.round(ms);
}
