import { Agent } from 'node:https';
import { describe, expect, it } from 'vitest';
import { checkIdempotentOptions, checkOptions } from '#src/options/check.js';
import { IdempotencyError } from '#src/shared/errors.js';

type Tree = Record<string, unknown>;

const KAFKA = { client: { brokers: ['localhost:9092'] }, consumer: { groupId: 'billing' } };

/** The least that is right, with one thing put at a path. */
function withOption(path: string, value: unknown): Tree {
  const options = structuredClone({ kafka: KAFKA }) as Tree;
  const names = path.split('.');
  const last = names.pop() ?? '';
  const parent = names.reduce((at, name) => (at[name] ??= {}) as Tree, options);
  parent[last] = value;
  return options;
}

function faultLines(check: () => void): string[] {
  try {
    check();
  } catch (error) {
    if (!IdempotencyError.is(error, 'OPTIONS_INVALID')) throw error;
    return error.message.split('\n').slice(1, -1);
  }
  return [];
}

const faultsOf = (options: unknown) => faultLines(() => checkOptions(options));
const decoratorFaultsOf = (options: unknown) =>
  faultLines(() => checkIdempotentOptions(options, '@Idempotent() of Billing.charge'));

describe('one wrong option gives one line with its path, the value got and the remedy', () => {
  const cases: [path: string, value: unknown, got: string, remedy: RegExp][] = [
    ['kafka', [], 'an empty array', /client: \{ brokers \}/],
    ['kafka', 'localhost:9092', "'localhost:9092'", /client: \{ brokers \}/],
    ['kafka', null, 'null', /client: \{ brokers \}/],
    ['kafka', undefined, 'missing', /client: \{ brokers \}/],
    ['kafka', Promise.resolve({}), 'a Promise', /forRootAsync/],
    ['kafka', new Map(), 'an object', /client: \{ brokers \}/],
    ['kafka.client', undefined, 'missing', /brokers: \['localhost:9092'\]/],
    ['kafka.client.brokers', undefined, 'missing', /'host:port'/],
    ['kafka.client.brokers', [], 'an empty array', /'host:port'/],
    ['kafka.client.brokers', 'localhost:9092', "'localhost:9092'", /Give an array/],
    ['kafka.client.brokers', ['a:9092', undefined], 'an array of 2', /brokers\[1\] is undefined/],
    ['kafka.client.brokers', ['localhost'], 'an array of 1', /brokers\[0\] is 'localhost'/],
    ['kafka.client.brokers', ['[::1]:9092'], 'an array of 1', /brokers\[0\]/],
    ['kafka.client.clientId', 7, '7', /Give a name/],
    ['kafka.client.logLevel', 3, '3', /4 \(INFO\)/],
    ['kafka.client.connectionTimeout', '3s', "'3s'", /milliseconds/],
    ['kafka.client.ssl', 'yes', 'a string', /tls\.connect/],
    ['kafka.client.sasl', 'plain', 'a string', /mechanism/],
    ['kafka.client.retry', 5, '5', /retries: 5/],
    ['kafka.client.retry.retries', -1, '-1', /whole number from 0, or Infinity/],
    ['kafka.client.socketFactory', {}, 'an object', /function/],
    ['kafka.consumer', undefined, 'missing', /groupId/],
    ['kafka.consumer.groupId', undefined, 'missing', /consumer group's name/],
    ['kafka.consumer.groupId', '', "''", /consumer group's name/],
    ['kafka.consumer.groupId', ['billing'], 'an array of 1', /consumer group's name/],
    ['kafka.consumer.sessionTimeout', '30s', "'30s'", /milliseconds/],
    ['kafka.consumer.sessionTimeout', 0, '0', /whole number from 1/],
    ['kafka.consumer.heartbeatInterval', NaN, 'NaN', /whole number from 1/],
    ['kafka.consumer.maxWaitTimeInMs', 0, '0', /whole number from 1/],
    ['kafka.consumer.partitionAssigners', ['range'], 'an array of 1', /assigner functions/],
    ['kafka.subscribe', true, 'true', /fromBeginning: true/],
    ['kafka.subscribe.fromBeginning', 'earliest', "'earliest'", /true or false/],
    ['kafka.postfixId', 1, '1', /'-server'/],
    ['timeout', 0, '0', /from 1ms to 24d/],
    ['timeout', Infinity, 'Infinity', /from 1ms to 24d/],
    ['timeout', '30 parsecs', "'30 parsecs'", /'30s'/],
    ['timeout', '60d', "'60d'", /to 24d/],
    ['retry', 'never', "'never'", /delay: '200ms'/],
    ['retry.attempts', 0, '0', /whole number from 1, or Infinity/],
    ['retry.attempts', 2.5, '2.5', /whole number from 1, or Infinity/],
    ['retry.delay', '-1s', "'-1s'", /from 1ms/],
    ['retry.factor', 0.5, '0.5', /number from 1/],
    ['retry.factor', Infinity, 'Infinity', /number from 1/],
    ['retry.maxDelay', '', "''", /from 1ms/],
    ['retry.jitter', 'half', "'half'", /'full', 'none'/],
    ['holdKey', 'yes', "'yes'", /true or false/],
    ['redelivery', 4, '4', /rounds: 4/],
    ['redelivery.rounds', -1, '-1', /whole number from 0\./],
    ['redelivery.rounds', Infinity, 'Infinity', /whole number from 0\./],
    ['redelivery.delay', 0, '0', /from 1ms to 10y/],
    ['redelivery.factor', 0.9, '0.9', /number from 1/],
    ['redelivery.maxDelay', '11y', "'11y'", /to 10y/],
    ['kafka.producer', 'gzip', "'gzip'", /compression: 'gzip'/],
    ['kafka.producer.compression', 'zstd', "'zstd'", /'none', 'gzip'/],
    ['kafka.producer.createPartitioner', 'murmur2', "'murmur2'", /partitioner of kafkajs/],
    ['kafka.codecs', ['snappy'], 'an array of 1', /snappy: SnappyCodec/],
    ['kafka.codecs.zstd', { decompress: () => undefined }, 'an object', /function that answers \{ decompress \}/],
    ['kafka.offsetOutOfRange', 'latest', "'latest'", /'earliest', 'fail'/],
    ['deadLetters', 'billing.dead', "'billing.dead'", /topic: 'billing\.dead'/],
    ['deadLetters.topic', undefined, 'missing', /name of a topic/],
    ['deadLetters.topic', '', "''", /name of a topic/],
    ['deadLetters.topic', 'a b', "'a b'", /name of a topic/],
    ['deadLetters.topic', '..', "'..'", /name of a topic/],
    ['deadLetters.topic', '__consumer_offsets', "'__consumer_offsets'", /name of a topic/],
    ['deadLetters.topic', 'x'.repeat(250), "'xxx", /name of a topic/],
    ['parking', '1s', "'1s'", /poll: '1s'/],
    ['parking.poll', '2h', "'2h'", /from 10ms to 1h/],
    ['parking.discarded', '-1s', "'-1s'", /from 1ms to 10y/],
    ['classify', 'permanent', "'permanent'", /function of the error/],
    ['decode', 'xml', "'xml'", /'json', 'text', 'bytes', or a function/],
    ['isolation', 'read committed', "'read committed'", /'READ COMMITTED', 'REPEATABLE READ', 'SERIALIZABLE'/],
    ['dataSource', {}, 'an object', /DataSource's name/],
    ['dataSource', '', "''", /DataSource's name/],
    ['schema', 'my-schema', "'my-schema'", /\[A-Za-z_\]/],
    ['schema', 'a'.repeat(64), "'aaaa", /\{0,62\}/],
    ['preparedStatements', 'no', "'no'", /true or false/],
    ['claimTimeout', 0, '0', /from 1ms/],
    ['consumerNames', 'auto', "'auto'", /'derived', 'explicit'/],
    ['concurrency', 4, '4', /transactions: 8/],
    ['concurrency.transactions', 0, '0', /whole number from 1/],
    ['concurrency.transactions', 1.5, '1.5', /whole number from 1/],
    ['messagesPerTransaction', 0, '0', /whole number from 1 to 1000/],
    ['messagesPerTransaction', 1001, '1001', /whole number from 1 to 1000/],
    ['durability', 'off', "'off'", /'commit', 'window'/],
    ['concurrency.keys', 0, '0', /whole number from 1 to 1000/],
    ['concurrency.keys', 1001, '1001', /whole number from 1 to 1000/],
    ['concurrency.interleave', 1, '1', /true or false/],
    ['buffer.records', 0, '0', /whole number from 1/],
    ['buffer.bytes', '32mb', "'32mb'", /whole number from 1/],
    ['limits.jsonDepth', Infinity, 'Infinity', /whole number from 1/],
    ['commitInterval', 1, '1', /from 10ms to 5m/],
    ['commitInterval', '1h', "'1h'", /from 10ms to 5m/],
    ['shutdown', '25s', "'25s'", /deadline: '25s'/],
    ['shutdown.deadline', 0, '0', /from 1ms/],
  ];
  it.each(cases)('%s: %s', (path, value, got, remedy) => {
    const lines = faultsOf(withOption(path, value));
    expect(lines).toHaveLength(1);
    expect(lines[0]).toContain(`- ${path} is ${got}`);
    expect(lines[0]).toMatch(remedy);
  });
});

describe('what is known and refused names its own way out', () => {
  const cases: [path: string, remedy: RegExp][] = [
    ['kafka.consumer.allowAutoTopicCreation', /make the topics first/],
    ['kafka.consumer.retry.restartOnFailure', /always rebuilt/],
    ['kafka.client.retry.restartOnFailure', /always rebuilt/],
    ['kafka.run', /concurrency\.transactions/],
    ['kafka.send', /acks/],
    ['kafka.subscribe.topics', /@EventPattern/],
    ['kafka.deserializer', /decode/],
    ['kafka.parser', /decode: 'bytes'/],
    ['kafka.serializer', /Encode the value in the handler/],
    ['kafka.producerOnlyMode', /ClientKafka/],
    ['kafka.producer.acks', /Leave it out/],
    ['kafka.producer.idempotent', /acknowledged by all replicas/],
    ['kafka.producer.maxInFlightRequests', /one request at a time/],
    ['kafka.producer.transactionalId', /Leave it out/],
    ['kafka.producer.allowAutoTopicCreation', /make the topics first/],
    ['kafka.codecs.gzip', /built in/],
    ['redelivery.attempts', /redelivery\.rounds/],
    ['redelivery.jitter', /Leave it out/],
    ...['reusedId', 'retention'].map((path): [string, RegExp] => [path, /comes with a later one/]),
  ];
  it.each(cases)('%s', (path, remedy) => {
    const lines = faultsOf(withOption(path, { any: 'thing' }));
    expect(lines).toHaveLength(1);
    expect(lines[0]).toContain(`- ${path} is not an option`);
    expect(lines[0]).toMatch(remedy);
  });

  it.each(['version', 'dedupe', 'replay', 'key'])('%s of a decorator', (name) => {
    const lines = decoratorFaultsOf({ [name]: {} });
    expect(lines).toHaveLength(1);
    expect(lines[0]).toContain(`- ${name} is not an option`);
  });
});

describe('an unknown option is refused with the name that was meant', () => {
  const cases: [path: string, meant: RegExp][] = [
    ['timout', /Did you mean timeout\?/],
    ['retry.attempt', /Did you mean retry\.attempts\?/],
    ['kafka.consumer.sessionTimout', /Did you mean kafka\.consumer\.sessionTimeout\?/],
    ['groupId', /Did you mean kafka\.consumer\.groupId of forRoot\?/],
    ['kafka.brokers', /Did you mean kafka\.client\.brokers of forRoot\?/],
    ['kafka.consumer.fromBeginning', /Did you mean kafka\.subscribe\.fromBeginning of forRoot\?/],
    ['id', /Did you mean id of @Idempotent\(\)\?/],
    ['holdkey', /Did you mean holdKey\?/],
    ['redelivery.round', /Did you mean redelivery\.rounds\?/],
    ['kafka.codecs.zst', /Did you mean kafka\.codecs\.zstd\?/],
    ['rounds', /Did you mean redelivery\.rounds of forRoot\?/],
    ['kafka.compression', /Did you mean kafka\.producer\.compression of forRoot\?/],
    ['deadLetter', /Did you mean deadLetters\?/],
    ['buffer.qqqqqq', /Known here: records, bytes\./],
  ];
  it.each(cases)('%s', (path, meant) => {
    const lines = faultsOf(withOption(path, 1));
    expect(lines).toHaveLength(1);
    expect(lines[0]).toContain(`- ${path} is not an option`);
    expect(lines[0]).toMatch(meant);
  });

  it('kafka.consumer.groupID is both a missing groupId and a misspelt one', () => {
    const lines = faultsOf({ kafka: { ...KAFKA, consumer: { groupID: 'billing' } } });
    expect(lines).toHaveLength(2);
    expect(lines.join('\n')).toMatch(/groupID is not an option\. Did you mean kafka\.consumer\.groupId\?/);
    expect(lines.join('\n')).toMatch(/groupId is missing/);
  });

  it('what every object has, such as toString, is no option, and an own __proto__ does no harm', () => {
    const parsed = JSON.parse('{ "__proto__": { "timeout": 0 } }') as Tree;
    expect(faultsOf({ ...parsed, kafka: KAFKA, toString: () => 'options' })).toEqual([]);
  });
});

describe('options that are right alone and wrong together', () => {
  const consumer = (more: Tree): Tree => ({ kafka: { ...KAFKA, consumer: { groupId: 'billing', ...more } } });
  const cases: [options: Tree, path: string, text: RegExp][] = [
    [
      consumer({ sessionTimeout: 1500 }),
      'kafka.consumer.heartbeatInterval',
      /is 3000 \(the default\), but sessionTimeout is 1500.* 500\./,
    ],
    [
      consumer({ heartbeatInterval: 30000 }),
      'kafka.consumer.heartbeatInterval',
      /is 30000, but sessionTimeout is 30000 \(the default\).* 10000\./,
    ],
    [consumer({ heartbeatInterval: 24000 }), 'kafka.consumer.heartbeatInterval', /stop working or be dropped/],
    [
      consumer({ maxWaitTimeInMs: 20000 }),
      'kafka.consumer.maxWaitTimeInMs',
      /is 20000, .*at most a third of the session, 10000/,
    ],
    [consumer({ maxWaitTimeInMs: 28000 }), 'kafka.consumer.maxWaitTimeInMs', /is 28000/],
    [consumer({ heartbeatInterval: 20000, maxWaitTimeInMs: 9000 }), 'kafka.consumer.heartbeatInterval', /is 20000/],
    [consumer({ rebalanceTimeout: 3000 }), 'kafka.consumer.rebalanceTimeout', /above 3100/],
    [consumer({ minBytes: 20, maxBytes: 10 }), 'kafka.consumer.minBytes', /is 20, but maxBytes is 10/],
    [{ kafka: KAFKA, limits: { batchBytes: 1000 } }, 'limits.batchBytes', /is 1000, but .* 1048576 \(the default\)/],
    [
      { kafka: KAFKA, concurrency: { interleave: true } },
      'concurrency.interleave',
      /keys is 1 \(the default\).* messagesPerTransaction/,
    ],
    [
      { kafka: KAFKA, retry: { delay: '30s' } },
      'retry.maxDelay',
      /is '10s' \(the default\), but retry\.delay is '30s',/,
    ],
    [{ kafka: KAFKA, retry: { maxDelay: 10 } }, 'retry.maxDelay', /is 10, but retry\.delay is '200ms' \(the default\)/],
    [
      { kafka: KAFKA, redelivery: { maxDelay: '5s' } },
      'redelivery.maxDelay',
      /is '5s', but redelivery\.delay is '1m' \(the default\)/,
    ],
    [
      { kafka: KAFKA, redelivery: { delay: '1d' } },
      'redelivery.maxDelay',
      /is '6h' \(the default\), but redelivery\.delay is '1d',.*Raise redelivery\.maxDelay/,
    ],
  ];
  it.each(cases)('%j', (options, path, text) => {
    const lines = faultsOf(options);
    expect(lines).toHaveLength(1);
    expect(lines[0]).toContain(`- ${path} `);
    expect(lines[0]).toMatch(text);
  });

  it.each([
    [consumer({ sessionTimeout: 1500, heartbeatInterval: 500 })],
    [consumer({ rebalanceTimeout: 10000 })],
    [consumer({ maxBytesPerPartition: 1000, maxBytes: 10 })],
    [{ kafka: KAFKA, buffer: { bytes: 1000 } }],
    [{ kafka: KAFKA, retry: { delay: 10000 } }],
    [{ kafka: KAFKA, redelivery: { delay: '7d', maxDelay: '30d', rounds: 0 } }],
    [{ kafka: KAFKA, parking: { discarded: '2y' }, deadLetters: { topic: 'billing.dead' } }],
    [{ kafka: { ...KAFKA, codecs: { zstd: () => ({ decompress: () => Buffer.alloc(0) }) } } }],
    [{ kafka: KAFKA, timeout: '60s', shutdown: { deadline: '1s' } }],
  ])('%j is no contradiction', (options) => {
    expect(faultsOf(options)).toEqual([]);
  });

  it('an option wrong by itself is not blamed a second time for a contradiction', () => {
    expect(faultsOf(consumer({ sessionTimeout: 0 }))).toHaveLength(1);
    expect(faultsOf({ kafka: KAFKA, retry: { delay: 'soon', maxDelay: 1 } })).toHaveLength(1);
  });
});

describe('everything is reported at once', () => {
  const wrong = {
    kafka: { client: { brokers: [], clintId: 'x' }, consumer: { allowAutoTopicCreation: true }, run: {} },
    timeout: 0,
    retry: { factor: 0, delay: '30s' },
    schema: 'a b',
    holdKey: 1,
  };
  const paths = [
    'kafka.run',
    'kafka.client.brokers',
    'kafka.client.clintId',
    'kafka.consumer.groupId',
    'kafka.consumer.allowAutoTopicCreation',
    'timeout',
    'retry.factor',
    'retry.maxDelay',
    'schema',
    'holdKey',
  ];

  it('ten faults give ten lines, each path once', () => {
    const got = faultsOf(wrong).map((line) => line.trim().split(' ')[1]);
    expect(got.toSorted()).toEqual(paths.toSorted());
  });

  it('the message says whose options they are, how many faults, and that nothing was started', () => {
    expect(() => checkOptions(wrong)).toThrow(/^IdempotencyModule\.forRoot: 10 faults in the options\.\n/);
    expect(() => checkOptions(wrong)).toThrow(/Nothing was started\. \(OPTIONS_INVALID\)$/);
    expect(() => checkIdempotentOptions({ id: 1 }, '@Idempotent() of Billing.charge')).toThrow(
      /^@Idempotent\(\) of Billing\.charge: 1 fault /,
    );
  });
});

describe('options that are no object are refused', () => {
  it.each([[undefined], [null], [[]], ['options'], [() => ({})], [Promise.resolve({})]])('%s', (options) => {
    expect(faultsOf(options)).toHaveLength(1);
  });

  it('a decorator without options is right, one with null is not', () => {
    expect(decoratorFaultsOf(undefined)).toEqual([]);
    expect(decoratorFaultsOf(null)).toHaveLength(1);
  });
});

describe('secrets are never shown', () => {
  it.each([
    ['kafka.client.sasl', 'hunter2'],
    ['kafka.client.ssl', 'hunter2'],
    ['kafka.client.password', 'hunter2'],
    ['kafka.sasl', { password: 'hunter2' }],
    ['kafka.client.brokers', ['kafka://me:hunter2@host:9092']],
    ['kafka.client.brokers', 'me:hunter2@host:9092'],
    ['schema', 'postgres://me:hunter2@host/db'],
  ])('%s', (path, value) => {
    const lines = faultsOf(withOption(path, value));
    expect(lines).toHaveLength(1);
    expect(lines[0]).not.toContain('hunter2');
  });
});

describe('right options pass whoever made them', () => {
  const deepFreeze = (value: unknown): unknown => {
    if (typeof value !== 'object' || value === null || Object.isFrozen(value)) return value;
    Object.freeze(value);
    Object.values(value).forEach(deepFreeze);
    return value;
  };

  it('deeply frozen', () => {
    expect(
      faultsOf(deepFreeze(structuredClone({ kafka: KAFKA, retry: { attempts: Infinity }, timeout: '1m' }))),
    ).toEqual([]);
  });

  it('with an https agent and a logger that point back at themselves', () => {
    const logger: Tree = {};
    logger['self'] = logger;
    const agent = new Agent();
    const ssl = { agent, context: { agent, logger } };
    const client = {
      brokers: () => ['localhost:9092'],
      ssl,
      sasl: { mechanism: 'own', logger },
      logCreator: () => () => logger,
    };
    expect(faultsOf({ kafka: { client, consumer: KAFKA.consumer } })).toEqual([]);
  });

  it('an instance of a class with getters, methods and a parent', () => {
    class Parent {
      get kafka() {
        return KAFKA;
      }
    }
    class Options extends Parent {
      timeout = '5s';
      classify() {
        return undefined;
      }
      helper() {}
    }
    expect(faultsOf(new Options())).toEqual([]);
  });

  it('inherited options are checked like own ones', () => {
    class Options {
      kafka = KAFKA;
      get timout() {
        return '5s';
      }
    }
    expect(faultsOf(new Options())).toHaveLength(1);
    expect(faultsOf(Object.create({ kafka: KAFKA, timeout: 0 }))).toHaveLength(1);
    expect(faultsOf(Object.assign(Object.create(null), { kafka: KAFKA }))).toEqual([]);
  });

  it('a method of the name of an option is that option', () => {
    class Options {
      kafka = KAFKA;
      timeout() {
        return '5s';
      }
    }
    expect(faultsOf(new Options())).toEqual([expect.stringContaining('- timeout is a function')]);
  });

  it('undefined counts as not given, for known and unknown names', () => {
    expect(
      faultsOf({
        kafka: { ...KAFKA, run: undefined },
        timeout: undefined,
        retry: { delay: undefined },
        holdKey: undefined,
      }),
    ).toEqual([]);
  });
});

describe('the options of a decorator', () => {
  it.each([
    ['consumer', '', /1 to 255 bytes/],
    ['consumer', 'é'.repeat(128), /1 to 255 bytes/],
    ['consumer', 'a\u0000b', /without control characters/],
    ['id', 'event-id', /header\('event-id'\)/],
    ['timeout', 0, /from 1ms/],
    ['kafka', KAFKA, /Did you mean kafka of forRoot\?/],
    ['commitInterval', '1s', /Did you mean commitInterval of forRoot\?/],
  ])('%s: %j', (name, value, remedy) => {
    const lines = decoratorFaultsOf({ [name]: value });
    expect(lines).toHaveLength(1);
    expect(lines[0]).toMatch(remedy);
  });

  it('a delay above the default longest wait is judged with the module, not here', () => {
    expect(decoratorFaultsOf({ retry: { delay: '30s' } })).toEqual([]);
    expect(decoratorFaultsOf({ retry: { delay: '30s', maxDelay: '1s' } })).toHaveLength(1);
    expect(decoratorFaultsOf({ redelivery: { delay: '1d' } })).toEqual([]);
    expect(decoratorFaultsOf({ redelivery: { delay: '1d', maxDelay: '1s' } })).toHaveLength(1);
  });

  it('a name of 255 bytes and an id source pass', () => {
    expect(decoratorFaultsOf({ consumer: 'a'.repeat(255), id: () => undefined, retry: { attempts: 1 } })).toEqual([]);
  });
});
