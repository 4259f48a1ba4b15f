import { connect, createServer, type Server } from 'node:net';
import { Kafka, logLevel, type Admin } from 'kafkajs';
import { afterEach, expect, test } from 'vitest';
import { freePort } from '#src/testing/free-port.js';
import { processEntry } from '../../services/process-table.js';
import { startEmbeddedKafka, type EmbeddedKafka } from '../../services/services.js';
import { until } from 'nestjs-kafka-idempotency/testing';

let kafka: EmbeddedKafka | undefined;

afterEach(async () => {
  await kafka?.close();
  kafka = undefined;
});

async function withAdmin<T>(brokers: string[], use: (admin: Admin) => Promise<T>): Promise<T> {
  const admin = new Kafka({ brokers, logLevel: logLevel.NOTHING }).admin();
  await admin.connect();
  try {
    return await use(admin);
  } finally {
    await admin.disconnect();
  }
}

/** Values of all records of a topic, read from the beginning by a new group with a session of 1.5 s. */
async function read(brokers: string[], topic: string, count: number): Promise<string[]> {
  const client = new Kafka({ brokers, logLevel: logLevel.NOTHING });
  const consumer = client.consumer({
    groupId: `read-${topic}`,
    sessionTimeout: 1_500,
    heartbeatInterval: 300,
    maxWaitTimeInMs: 100,
  });
  const values: string[] = [];
  await consumer.connect();
  await consumer.subscribe({ topics: [topic], fromBeginning: true });
  await consumer.run({ eachMessage: async ({ message }) => void values.push(String(message.value)) });
  await until(() => values.length >= count, { what: `${count} records of ${topic}`, timeoutMs: 30_000 });
  await consumer.disconnect();
  return values.sort();
}

async function send(brokers: string[], topic: string, values: string[]): Promise<void> {
  const producer = new Kafka({ brokers, logLevel: logLevel.NOTHING }).producer({ idempotent: true });
  await producer.connect();
  await producer.send({ topic, messages: values.map((value) => ({ value })) });
  await producer.disconnect();
}

test('one broker makes and lists topics, and no topic by itself', async () => {
  kafka = await startEmbeddedKafka();
  await withAdmin(kafka.brokers, async (admin) => {
    await admin.createTopics({ topics: [{ topic: 'orders', numPartitions: 6 }] });
    expect(await admin.listTopics()).toEqual(['orders']);
    await expect(admin.fetchTopicMetadata({ topics: ['made-up'] })).rejects.toThrow(
      'does not host this topic-partition',
    );
    expect(await admin.listTopics()).toEqual(['orders']);
  });
});

test.each([
  ['kill', (each: EmbeddedKafka) => each.kill()],
  ['graceful stop', (each: EmbeddedKafka) => each.stop()],
])('after a %s one broker has the same records on the same port, and groups work', async (_, end) => {
  kafka = await startEmbeddedKafka();
  const { brokers } = kafka;
  await withAdmin(brokers, (admin) => admin.createTopics({ topics: [{ topic: 'kept', numPartitions: 2 }] }));
  await send(brokers, 'kept', ['a', 'b']);
  await end(kafka);
  expect(kafka.nodes[0]?.isRunning).toBe(false);
  await kafka.start();
  expect(kafka.brokers).toEqual(brokers);
  await send(brokers, 'kept', ['c']);
  expect(await read(brokers, 'kept', 3)).toEqual(['a', 'b', 'c']);
});

test('a paused broker keeps its connections and answers once it is resumed', async () => {
  kafka = await startEmbeddedKafka();
  const { brokers } = kafka;
  await withAdmin(brokers, async (admin) => {
    await admin.listTopics();
    kafka?.pause();
    let answered = false;
    const answer = admin.listTopics().then(() => (answered = true));
    const [node] = (kafka as EmbeddedKafka).nodes;
    await until(() => processEntry(node?.pid ?? 0)?.isStopped, { what: 'the broker to stop' });
    expect(answered).toBe(false);
    kafka?.resume();
    await answer;
  });
});

test('of three brokers one can be killed: topics with three replicas take records before, meanwhile and after', async () => {
  kafka = await startEmbeddedKafka({ brokers: 3 });
  const { brokers } = kafka;
  await withAdmin(brokers, async (admin) => {
    const topic = { topic: 'replicated', numPartitions: 3, replicationFactor: 3 };
    await admin.createTopics({ topics: [topic], waitForLeaders: true });
  });
  await send(brokers, 'replicated', ['a', 'b', 'c']);
  await kafka.node(2).kill();
  await until(() => withAdmin(brokers, leadersOf('replicated')).then((leaders) => !leaders.includes(2)), {
    what: 'the partitions of the killed broker to move',
    timeoutMs: 30_000,
  });
  await send(brokers, 'replicated', ['d', 'e', 'f']);
  await kafka.node(2).start();
  await send(brokers, 'replicated', ['g']);
  expect(await read(brokers, 'replicated', 7)).toEqual(['a', 'b', 'c', 'd', 'e', 'f', 'g']);
});

function leadersOf(topic: string): (admin: Admin) => Promise<number[]> {
  return async (admin) => {
    const { topics } = await admin.fetchTopicMetadata({ topics: [topic] });
    return topics.flatMap(({ partitions }) => partitions.map(({ leader }) => leader));
  };
}

test('clients that come by a proxy are told the ports of the proxies and stay behind them', async () => {
  const proxyPort = await freePort();
  kafka = await startEmbeddedKafka({ proxyPorts: [proxyPort] });
  const proxy = forwarder(kafka.nodes[0]?.proxiedPort as number).listen(proxyPort, '127.0.0.1');
  const behind = await withAdmin([`127.0.0.1:${proxyPort}`], (admin) => admin.describeCluster());
  proxy.close();
  const direct = await withAdmin(kafka.brokers, (admin) => admin.describeCluster());
  expect(behind.brokers.map(({ port }) => port)).toEqual([proxyPort]);
  expect(direct.brokers.map(({ port }) => port)).toEqual([kafka.nodes[0]?.port]);
});

function forwarder(port: number): Server {
  return createServer((client) => {
    const server = connect(port, '127.0.0.1');
    client.pipe(server).pipe(client);
  });
}
