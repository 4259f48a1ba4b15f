import type { RedeliverySettings } from '../shared/parking.js';
import type { ConsumerConfig, KafkaConfig } from 'kafkajs';
import type { HandlerOptions, IdempotencyOptions } from '../idempotency.options.js';
import { type Duration, durationMs } from '../shared/duration.js';
import { maxDelayBelowDelay } from './contradictions.js';
import { DEFAULTS } from './defaults.js';
import { optionsInvalid } from './fault.js';
import { readOptions } from './read.js';
import { optionsOf, type Shape } from './rules.js';
import { ClientShape, ConsumerShape } from './shapes.js';

/** Handler options with nothing left open. */
export interface ResolvedHandlerOptions {
  readonly holdKey: boolean;
  readonly redelivery: RedeliverySettings;
  readonly timeoutMs: number;
  readonly retry: ResolvedRetry;
  readonly classify: HandlerOptions['classify'];
  readonly decode: NonNullable<HandlerOptions['decode']>;
  readonly isolation: NonNullable<HandlerOptions['isolation']>;
}

export interface ResolvedRetry {
  readonly attempts: number;
  readonly delayMs: number;
  readonly factor: number;
  readonly maxDelayMs: number;
  readonly jitter: 'full' | 'none';
}

/** The module's options with nothing left open but what only the database can tell: `schema` and `concurrency.transactions`. */
export interface ResolvedOptions extends ResolvedHandlerOptions {
  readonly kafka: ResolvedKafka;
  readonly dataSource: string;
  readonly schema: string | undefined;
  readonly preparedStatements: boolean;
  readonly claimTimeoutMs: number;
  readonly consumerNames: 'derived' | 'explicit';
  readonly concurrency: { readonly transactions: number | undefined };
  readonly buffer: { readonly records: number; readonly bytes: number };
  readonly limits: { readonly batchBytes: number; readonly jsonDepth: number };
  readonly commitIntervalMs: number;
  readonly shutdownDeadlineMs: number;
}

export interface ResolvedKafka {
  /** For `new Kafka()`: the user's values by reference, `clientId` with the postfix. */
  readonly client: KafkaConfig;
  /** For `kafka.consumer()`: our defaults, the user's values by reference, `groupId` with the postfix, no topic creation. */
  readonly consumer: ResolvedConsumer;
  readonly fromBeginning: boolean;
  readonly postfixId: string;
  readonly groupId: string;
  /** undefined: not given, and kafkajs's own is used without a postfix. */
  readonly clientId: string | undefined;
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
    concurrency: { transactions: options.concurrency?.transactions },
    buffer: {
      records: options.buffer?.records ?? DEFAULTS.buffer.records,
      bytes: options.buffer?.bytes ?? DEFAULTS.buffer.bytes,
    },
    limits: {
      batchBytes: options.limits?.batchBytes ?? DEFAULTS.limits.batchBytes,
      jsonDepth: options.limits?.jsonDepth ?? DEFAULTS.limits.jsonDepth,
    },
    commitIntervalMs: millis(options.commitInterval ?? DEFAULTS.commitInterval),
    shutdownDeadlineMs: millis(options.shutdown?.deadline ?? DEFAULTS.shutdown.deadline),
  };
}

/**
 * One handler's options: what its decorator gives, else what the module says, `retry` field by field. Throws OPTIONS_INVALID when the two
 * contradict each other only together; `where` is how the error calls the decorator.
 */
export function resolveHandlerOptions(
  module: ResolvedHandlerOptions,
  decorator: HandlerOptions = {},
  where = '@Idempotent()',
): ResolvedHandlerOptions {
  const merged = mergeHandlerOptions(module, decorator);
  const { delay, maxDelay } = decorator.retry ?? {};
  const fault = maxDelayBelowDelay(maxDelay ?? merged.retry.maxDelayMs, delay ?? merged.retry.delayMs, {
    maxDelay: maxDelay === undefined ? MODULE : '',
    delay: delay === undefined ? MODULE : '',
  });
  if (fault !== undefined) throw optionsInvalid(where, [fault]);
  return merged;
}

/** Names as Nest's transports make them: the postfix right behind. A name not given stays so. */
export function withPostfix<Name extends string | undefined>(name: Name, postfixId: string): Name {
  return (name === undefined ? name : `${name}${postfixId}`) as Name;
}

function handlerDefaults(): ResolvedHandlerOptions {
  const { timeout, retry, decode, isolation } = DEFAULTS;
  const { delay, maxDelay, ...rest } = retry;
  return {
    timeoutMs: millis(timeout),
    retry: { ...rest, delayMs: millis(delay), maxDelayMs: millis(maxDelay) },
    classify: undefined,
    decode,
    isolation,
    holdKey: false,
    redelivery: { rounds: 0, delayMs: 60_000, factor: 6, maxDelayMs: 21_600_000, jitter: 'none' },
  };
}

function mergeHandlerOptions(base: ResolvedHandlerOptions, given: HandlerOptions): ResolvedHandlerOptions {
  const { timeout, retry, classify, decode, isolation } = given;
  return {
    timeoutMs: timeout === undefined ? base.timeoutMs : millis(timeout),
    retry: {
      attempts: retry?.attempts ?? base.retry.attempts,
      delayMs: retry?.delay === undefined ? base.retry.delayMs : millis(retry.delay),
      factor: retry?.factor ?? base.retry.factor,
      maxDelayMs: retry?.maxDelay === undefined ? base.retry.maxDelayMs : millis(retry.maxDelay),
      jitter: retry?.jitter ?? base.retry.jitter,
    },
    // Bound, because options may be an instance of a class whose methods use `this`.
    classify: classify?.bind(given) ?? base.classify,
    decode: (typeof decode === 'function' ? decode.bind(given) : decode) ?? base.decode,
    isolation: isolation ?? base.isolation,
    holdKey: base.holdKey,
    redelivery: base.redelivery,
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
    fromBeginning: kafka.subscribe?.fromBeginning ?? DEFAULTS.kafka.subscribe.fromBeginning,
    postfixId,
    groupId,
    clientId,
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
