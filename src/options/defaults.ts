import type { HandlerOptions, IdempotencyOptions, IdempotentBatchOptions } from '../idempotency.options.js';

type Defaults = Omit<IdempotencyOptions, 'kafka' | 'classify' | 'schema' | 'deadLetters'> &
  Required<
    Pick<
      HandlerOptions,
      'timeout' | 'retry' | 'holdKey' | 'redelivery' | 'decode' | 'isolation' | 'messagesPerTransaction' | 'durability'
    >
  > & {
    kafka: Pick<IdempotencyOptions['kafka'], 'subscribe' | 'postfixId' | 'producer' | 'offsetOutOfRange'> & {
      consumer: Omit<IdempotencyOptions['kafka']['consumer'], 'groupId'>;
    };
    deadLetters: Omit<NonNullable<IdempotencyOptions['deadLetters']>, 'topic'>;
    batch: Required<Pick<IdempotentBatchOptions, 'maxSize' | 'maxWait'>>;
  };

/**
 * Every default of every option, in the form in which a user would give it. What has none here is found elsewhere (`schema`, `concurrency.transactions`), depends on
 * another option ({@link DEFAULT_ROUNDS}) or must be given.
 */
export const DEFAULTS = {
  timeout: '30s',
  retry: { attempts: 5, delay: '200ms', factor: 3, maxDelay: '10s', jitter: 'full' },
  holdKey: false,
  redelivery: { delay: '1m', factor: 6, maxDelay: '6h' },
  decode: 'json',
  isolation: 'READ COMMITTED',
  messagesPerTransaction: 1,
  durability: 'commit',
  batch: { maxSize: 500, maxWait: '50ms' },
  kafka: {
    consumer: { maxWaitTimeInMs: 100, rebalanceTimeout: 60000, sessionTimeout: 30000, heartbeatInterval: 3000 },
    producer: { compression: 'none' },
    subscribe: { fromBeginning: true },
    postfixId: '',
    offsetOutOfRange: 'earliest',
  },
  dataSource: 'default',
  preparedStatements: true,
  claimTimeout: '2s',
  consumerNames: 'derived',
  concurrency: { keys: 1, interleave: false },
  buffer: { records: 1000, bytes: 33554432 },
  limits: { batchBytes: 67108864, jsonDepth: 100 },
  commitInterval: '500ms',
  deadLetters: { stack: false },
  parking: { poll: '1s', discarded: '30d' },
  outbox: {
    relay: true,
    batch: 500,
    poll: '1s',
    lease: '15s',
    attempts: 10,
    maxBytes: 1_000_000,
    dedupeRetention: '14d',
  },
  shutdown: { deadline: '25s' },
} as const satisfies Defaults;

/** `redelivery.rounds`, by `holdKey`: an event of a key that nobody holds would come back behind newer ones of its key. */
export const DEFAULT_ROUNDS = { holdingKeys: 4, else: 0 } as const;

/** What kafkajs 2.2.4 fills in itself, for the checks that compare one of its values with another. Never handed to it. */
export const KAFKAJS_DEFAULTS = { maxBytesPerPartition: 1048576, minBytes: 1, maxBytes: 10485760 } as const;
