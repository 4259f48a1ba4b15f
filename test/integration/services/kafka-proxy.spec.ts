import { Kafka, logLevel, type Consumer, type KafkaConfig, type Producer } from 'kafkajs';
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, onTestFinished, test } from 'vitest';
import { until, type KafkaProxy } from 'nestjs-kafka-idempotency/testing';
import { startProxiedKafka, type ProxiedKafka } from '../../services/proxied-kafka.js';

const PRODUCE = 0;
const FETCH = 1;
const OFFSET_COMMIT = 8;
const ILLEGAL_GENERATION = 22;

let proxied: ProxiedKafka;
let proxy: KafkaProxy;
let topic: string;
let topics = 0;

beforeAll(async () => {
  proxied = await startProxiedKafka();
  proxy = proxied.proxyOf(1);
});

afterAll(() => proxied.close());

beforeEach(async () => {
  topic = `t-${topics++}`;
  const admin = direct().admin();
  await admin.connect();
  await admin.createTopics({ topics: [{ topic, numPartitions: 1 }], waitForLeaders: true });
  await admin.disconnect();
});

afterEach(() => proxy.heal());

function direct(): Kafka {
  return new Kafka({ brokers: proxied.kafka.brokers, logLevel: logLevel.NOTHING });
}

function behind(config: Partial<KafkaConfig> = {}): Kafka {
  return new Kafka({ brokers: proxied.brokers, logLevel: logLevel.NOTHING, retry: { retries: 0 }, ...config });
}

async function connectedProducer(config: Partial<KafkaConfig> = {}): Promise<Producer> {
  const producer = behind(config).producer();
  await producer.connect();
  onTestFinished(async () => {
    await proxy.heal();
    await producer.disconnect();
  });
  return producer;
}

async function send(producer: Producer, value = 'x'): Promise<void> {
  await producer.send({ topic, messages: [{ value }] });
}

async function stored(): Promise<number> {
  const admin = direct().admin();
  await admin.connect();
  const [offsets] = await admin.fetchTopicOffsets(topic);
  await admin.disconnect();
  return Number(offsets?.high);
}

async function committed(groupId: string): Promise<string | undefined> {
  const admin = direct().admin();
  await admin.connect();
  const [found] = await admin.fetchOffsets({ groupId, topics: [topic] });
  await admin.disconnect();
  return found?.partitions[0]?.offset;
}

test('without a fault all goes through, and clients stay behind the proxy', async () => {
  const before = proxy.requests(PRODUCE);
  const producer = await connectedProducer();
  await send(producer, 'y'.repeat(500_000));
  expect(await stored()).toBe(1);
  expect(proxy.requests(PRODUCE)).toBe(before + 1);
  expect(proxy.connected).toBeGreaterThan(0);
});

describe('the network', () => {
  test('reset breaks open connections and takes new ones', async () => {
    const producer = await connectedProducer({ retry: { retries: 5, initialRetryTime: 50 } });
    await send(producer);
    proxy.reset();
    await until(() => proxy.connected === 0, { what: 'the connections to end' });
    await send(producer);
    expect(await stored()).toBe(2);
  });

  test('refuse turns new connections away, and accept ends it', async () => {
    proxy.refuse();
    await expect(connectedProducer()).rejects.toThrow('ECONNREFUSED');
    await proxy.accept();
    await send(await connectedProducer());
    expect(await stored()).toBe(1);
  });

  test('a delay makes an answer late by both ways', async () => {
    const producer = await connectedProducer();
    await send(producer);
    proxy.delay(100, 50);
    const start = performance.now();
    await send(producer);
    expect(performance.now() - start).toBeGreaterThanOrEqual(195);
  });

  test('a throttled connection carries what it is told and no more', async () => {
    const producer = await connectedProducer();
    await send(producer);
    proxy.throttle(10_000);
    const start = performance.now();
    await send(producer, 'x'.repeat(4_000));
    expect(performance.now() - start).toBeGreaterThanOrEqual(300);
  });

  test('behind a black hole towards the client the broker stores what its client hears nothing of', async () => {
    const producer = await connectedProducer({ requestTimeout: 500 });
    await send(producer);
    proxy.blackhole('toClient');
    await expect(send(producer)).rejects.toThrow('timed out');
    await until(async () => (await stored()) === 2, { what: 'the record' });
  });

  test('behind a black hole towards the broker nothing arrives, and no connection ends', async () => {
    const producer = await connectedProducer({ requestTimeout: 500 });
    await send(producer);
    const open = proxy.connected;
    proxy.blackhole('toServer');
    await expect(send(producer)).rejects.toThrow('timed out');
    expect(await stored()).toBe(1);
    expect(proxy.connected).toBeGreaterThanOrEqual(open);
  });

  test('cutAfter cuts in the middle of a request', async () => {
    const producer = await connectedProducer();
    await send(producer);
    const cut = proxy.cutAfter(5_000, 'toServer');
    await expect(send(producer, 'x'.repeat(10_000))).rejects.toThrow();
    await cut.hit;
    expect(await stored()).toBe(1);
  });
});

describe('a commit answered with an error', () => {
  let consumer: Consumer;
  const commit = () => consumer.commitOffsets([{ topic, partition: 0, offset: '1' }]);

  async function joined(groupId: string): Promise<void> {
    // The first group of a cluster waits until its coordinator is there.
    consumer = behind({ retry: { retries: 10 } }).consumer({
      groupId,
      sessionTimeout: 6_000,
      heartbeatInterval: 300,
      maxWaitTimeInMs: 100,
    });
    onTestFinished(() => consumer.disconnect());
    await consumer.connect();
    await consumer.subscribe({ topics: [topic], fromBeginning: true });
    // Before its first fetch kafkajs resolves a commit without sending it.
    const ready = new Promise<void>((resolve) => consumer.on(consumer.events.FETCH, () => resolve()));
    await consumer.run({ autoCommit: false, eachMessage: () => Promise.resolve() });
    await ready;
  }

  test('is stored nowhere, and the next one is', async () => {
    await joined(`${topic}-once`);
    const error = proxy.answerCommitWith(ILLEGAL_GENERATION);
    await expect(commit()).rejects.toMatchObject({ cause: { type: 'ILLEGAL_GENERATION' } });
    expect(await committed(`${topic}-once`)).toBe('-1');
    expect(error.hits).toBe(1);
    await commit();
    expect(await committed(`${topic}-once`)).toBe('1');
    expect(error.hits).toBe(1);
  });

  test('requests are counted by kind', async () => {
    await joined(`${topic}-count`);
    const [fetches, commits] = [proxy.requests(FETCH), proxy.requests(OFFSET_COMMIT)];
    await commit();
    await until(() => proxy.requests(FETCH) > fetches, { what: 'a fetch' });
    expect(proxy.requests(OFFSET_COMMIT)).toBeGreaterThan(commits);
  });
});
