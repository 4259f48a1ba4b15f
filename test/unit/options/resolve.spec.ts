import { Agent } from 'node:https';
import { readFileSync } from 'node:fs';
import { describe, expect, it } from 'vitest';
import type { IdempotencyOptions } from '#src/idempotency.options.js';
import { DEFAULT_ROUNDS, DEFAULTS } from '#src/options/defaults.js';
import { resolveHandlerOptions, resolveOptions } from '#src/options/resolve.js';
import { IdempotencyError } from '#src/shared/errors.js';

const LEAST: IdempotencyOptions = {
  kafka: { client: { brokers: ['localhost:9092'] }, consumer: { groupId: 'billing' } },
};

describe('resolveOptions', () => {
  it('gives every default when only brokers and group are given', () => {
    expect(resolveOptions(LEAST)).toEqual({
      timeoutMs: 30_000,
      retry: { attempts: 5, delayMs: 200, factor: 3, maxDelayMs: 10_000, jitter: 'full' },
      classify: undefined,
      decode: 'json',
      isolation: 'READ COMMITTED',
      messagesPerTransaction: 1,
      durability: 'commit',
      holdKey: false,
      redelivery: { rounds: undefined, delayMs: 60_000, factor: 6, maxDelayMs: 21_600_000, jitter: 'none' },
      kafka: {
        client: { brokers: ['localhost:9092'] },
        consumer: {
          groupId: 'billing',
          maxWaitTimeInMs: 100,
          rebalanceTimeout: 60_000,
          sessionTimeout: 30_000,
          heartbeatInterval: 3_000,
          allowAutoTopicCreation: false,
        },
        producer: { compression: 'none', createPartitioner: undefined },
        codecs: {},
        fromBeginning: true,
        offsetOutOfRange: 'earliest',
        postfixId: '',
        groupId: 'billing',
        clientId: undefined,
      },
      dataSource: 'default',
      schema: undefined,
      preparedStatements: true,
      claimTimeoutMs: 2_000,
      consumerNames: 'derived',
      concurrency: { transactions: undefined, keys: 1, interleave: false },
      buffer: { records: 1000, bytes: 33_554_432 },
      limits: { batchBytes: 67_108_864, jsonDepth: 100 },
      commitIntervalMs: 500,
      deadLetters: undefined,
      parking: { pollMs: 1000, discardedMs: 2_592_000_000 },
      outbox: {
        isNeeded: false,
        relay: true,
        batch: 500,
        pollMs: 1000,
        leaseMs: 15_000,
        attempts: 10,
        maxBytes: 1_000_000,
        dedupeRetentionMs: 1_209_600_000,
      },
      shutdownDeadlineMs: 25_000,
    });
  });

  it('takes what is given, durations as text or milliseconds', () => {
    const decode = () => 'x';
    const resolved = resolveOptions({
      ...LEAST,
      timeout: '1m',
      claimTimeout: 1500,
      commitInterval: '1s',
      shutdown: { deadline: 0.6 },
      decode,
      schema: 'app',
      retry: { maxDelay: '1h' },
      concurrency: { transactions: 3, keys: 16 },
      buffer: { bytes: 5 },
      preparedStatements: false,
    });
    expect(resolved).toMatchObject({
      timeoutMs: 60_000,
      claimTimeoutMs: 1500,
      commitIntervalMs: 1000,
      shutdownDeadlineMs: 1,
      schema: 'app',
    });
    expect(resolved).toMatchObject({
      retry: { delayMs: 200, maxDelayMs: 3_600_000 },
      concurrency: { transactions: 3, keys: 16, interleave: false },
      buffer: { records: 1000, bytes: 5 },
    });
    expect(resolved.preparedStatements).toBe(false);
  });

  it('takes what is given for parking, dead letters, producer and codecs', () => {
    const zstd = () => ({ decompress: (compressed: Buffer) => compressed });
    const createPartitioner = () => () => 0;
    const resolved = resolveOptions({
      ...LEAST,
      kafka: {
        ...LEAST.kafka,
        producer: { createPartitioner, compression: 'gzip' },
        codecs: { zstd },
        offsetOutOfRange: 'fail',
      },
      deadLetters: { topic: 'billing.dead' },
      parking: { discarded: '1y' },
      outbox: { relay: false, lease: '3s' },
      holdKey: true,
      redelivery: { rounds: 2, maxDelay: '7d' },
    });
    expect(resolved).toMatchObject({
      deadLetters: { topic: 'billing.dead', stack: false },
      parking: { pollMs: 1000, discardedMs: 31_557_600_000 },
      outbox: { isNeeded: true, relay: false, leaseMs: 3000, batch: 500 },
      holdKey: true,
      redelivery: { rounds: 2, delayMs: 60_000, factor: 6, maxDelayMs: 604_800_000, jitter: 'none' },
    });
    expect(resolved.kafka).toMatchObject({
      producer: { createPartitioner, compression: 'gzip' },
      codecs: { zstd },
      offsetOutOfRange: 'fail',
    });
    expect(resolveOptions({ ...LEAST, deadLetters: { topic: 'x', stack: true } }).deadLetters?.stack).toBe(true);
  });

  it('appends the postfix to group and client as Nest does', () => {
    const { kafka } = resolveOptions({
      kafka: { client: { brokers: ['a:1'], clientId: 'app' }, consumer: { groupId: 'g' }, postfixId: '-server' },
    });
    expect(kafka).toMatchObject({
      groupId: 'g-server',
      clientId: 'app-server',
      consumer: { groupId: 'g-server' },
      client: { clientId: 'app-server' },
    });
  });

  it('an undefined of the user does not win over a default', () => {
    const given = { ...LEAST.kafka.consumer, maxWaitTimeInMs: undefined } as unknown as { groupId: string };
    const { kafka } = resolveOptions({ kafka: { ...LEAST.kafka, consumer: given } });
    expect(kafka.consumer.maxWaitTimeInMs).toBe(100);
  });

  it('two applications resolve one frozen options object alike, and it stays as it was', () => {
    const agent = new Agent();
    const ssl = Object.freeze({ agent, self: undefined as unknown });
    const client = Object.freeze({ brokers: ['a:1'], clientId: 'app', ssl });
    const retry = Object.freeze({ retries: 8 });
    const consumer = Object.freeze({ groupId: 'g', retry });
    const options = Object.freeze({
      kafka: Object.freeze({ client, consumer, postfixId: '-x' }),
    }) as unknown as IdempotencyOptions;
    const [one, other] = [resolveOptions(options), resolveOptions(options)];
    expect(one.kafka.groupId).toBe('g-x');
    expect(other.kafka.groupId).toBe('g-x');
    expect(one.kafka.client.ssl).toBe(ssl);
    expect(one.kafka.consumer.retry).toBe(retry);
    expect(Object.keys(client)).toEqual(['brokers', 'clientId', 'ssl']);
  });

  it('options inherited by a kafkajs configuration object reach kafkajs', () => {
    class Consumer {
      get groupId() {
        return 'inherited';
      }
      get sessionTimeout() {
        return 9000;
      }
    }
    const { kafka } = resolveOptions({ kafka: { ...LEAST.kafka, consumer: new Consumer() } });
    expect(kafka.consumer).toMatchObject({ groupId: 'inherited', sessionTimeout: 9000 });
  });

  it('classify keeps its object when options are an instance of a class', () => {
    class Options {
      kafka = LEAST.kafka;
      answer = 'permanent' as const;
      classify() {
        return this.answer;
      }
    }
    expect(resolveOptions(new Options()).classify?.(new Error(), {} as never)).toBe('permanent');
  });
});

describe('resolveHandlerOptions', () => {
  const module = resolveOptions({ ...LEAST, timeout: '5s', retry: { attempts: 9, delay: 50 } });

  it('without decorator options gives the module’s', () => {
    expect(resolveHandlerOptions(module)).toEqual({
      timeoutMs: 5000,
      retry: module.retry,
      classify: undefined,
      decode: 'json',
      isolation: 'READ COMMITTED',
      messagesPerTransaction: 1,
      durability: 'commit',
      holdKey: false,
      redelivery: { rounds: 0, delayMs: 60_000, factor: 6, maxDelayMs: 21_600_000, jitter: 'none' },
    });
  });

  it('the decorator wins field by field, inside retry too', () => {
    const resolved = resolveHandlerOptions(module, {
      isolation: 'SERIALIZABLE',
      decode: 'bytes',
      retry: { attempts: Infinity, jitter: 'none' },
    });
    expect(resolved).toMatchObject({ timeoutMs: 5000, isolation: 'SERIALIZABLE', decode: 'bytes' });
    expect(resolved.retry).toEqual({ attempts: Infinity, delayMs: 50, factor: 3, maxDelayMs: 10_000, jitter: 'none' });
  });

  it.each([
    ['none, in nothing', {}, {}, 0],
    ['holdKey in the decorator', {}, { holdKey: true }, 4],
    ['holdKey in the module', { holdKey: true }, {}, 4],
    ['holdKey in the module, off in the decorator', { holdKey: true }, { holdKey: false }, 0],
    ['rounds of the module', { redelivery: { rounds: 2 } }, { holdKey: true }, 2],
    ['rounds of the decorator', { holdKey: true, redelivery: { rounds: 2 } }, { redelivery: { rounds: 0 } }, 0],
    ['another field of redelivery', {}, { redelivery: { delay: '2m' }, holdKey: true }, 4],
  ] as const)('redelivery rounds: %s', (_, inModule, inDecorator, rounds) => {
    const resolved = resolveHandlerOptions(resolveOptions({ ...LEAST, ...inModule }), inDecorator);
    expect(resolved.redelivery.rounds).toBe(rounds);
  });

  it('redelivery of the decorator wins field by field, and is judged with the module’s', () => {
    const hourly = resolveOptions({ ...LEAST, redelivery: { factor: 1, delay: '1h' } });
    expect(resolveHandlerOptions(hourly, { redelivery: { maxDelay: '2h' } }).redelivery).toEqual({
      rounds: 0,
      delayMs: 3_600_000,
      factor: 1,
      maxDelayMs: 7_200_000,
      jitter: 'none',
    });
    expect(() => resolveHandlerOptions(hourly, { redelivery: { maxDelay: '1m' } })).toThrow(
      /redelivery\.maxDelay is '1m', but redelivery\.delay is 3600000 \(of the module\)/,
    );
  });

  it('a delay above the module’s longest wait is refused with the decorator’s name', () => {
    const resolve = () => resolveHandlerOptions(module, { retry: { delay: '30s' } }, '@Idempotent() of Billing.charge');
    expect(resolve).toThrow(
      /^@Idempotent\(\) of Billing\.charge: 1 fault .*\n.*retry\.maxDelay is 10000 \(of the module\), but retry\.delay is '30s'/,
    );
    expect(resolve).toThrow(expect.objectContaining({ code: 'OPTIONS_INVALID' }));
    expect(() => resolveHandlerOptions(module, { retry: { delay: '30s', maxDelay: '1m' } })).not.toThrow(
      IdempotencyError,
    );
  });
});

it('the docstrings name every default', () => {
  const source = readFileSync('src/idempotency.options.ts', 'utf8');
  const documented = [...source.matchAll(/Default (.+?)\.?(?: \(.*)?(?: \*\/)?$/gm)].map(([, text = '']) =>
    text.replace(/\.$/, ''),
  );
  const written = (value: unknown): string[] => {
    if (typeof value === 'string') return [`'${value}'`];
    if (typeof value === 'object' && value !== null) return Object.values(value).flatMap(written);
    return [String(value)];
  };
  const { holdingKeys, else: otherwise } = DEFAULT_ROUNDS;
  expect(documented).toContain(`${String(holdingKeys)} with \`holdKey\`, else ${String(otherwise)}`);
  const { consumer, ...kafka } = DEFAULTS.kafka;
  for (const text of written({ ...DEFAULTS, kafka })) expect(documented).toContain(text);
  for (const [name, value] of Object.entries(consumer)) expect(source).toContain(`${name}: ${String(value)}`);
});
