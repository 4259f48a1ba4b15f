import { createServer, type AddressInfo, type Socket } from 'node:net';
import { setTimeout as sleep } from 'node:timers/promises';
import { logLevel, type KafkaConfig } from 'kafkajs';
import { afterAll, afterEach, beforeAll, expect, onTestFinished, test } from 'vitest';
import { until, type KafkaProxy } from 'nestjs-kafka-idempotency/testing';
import { kafkaClients } from '#src/kafka/kafka-client.js';
import { SilentBrokers } from '#src/kafka/silent-brokers.js';
import { startProxiedKafka, type ProxiedKafka } from '../../services/proxied-kafka.js';

/** With all of kafkajs's patience: only the watch over the brokers can end a request early. */
const PATIENT: Partial<KafkaConfig> = { requestTimeout: 120_000, retry: { retries: 0 }, logLevel: logLevel.NOTHING };

let proxied: ProxiedKafka;
let proxy: KafkaProxy;
let brokers: string[];
beforeAll(async () => {
  proxied = await startProxiedKafka();
  proxy = proxied.proxyOf(1);
  brokers = proxied.brokers;
});
afterEach(() => proxy.heal());
afterAll(() => proxied.close());

test('F20 a request that a silent broker was sent fails within ten seconds, whatever requestTimeout is', async () => {
  const admin = kafkaClients({ brokers, ...PATIENT })().admin();
  await admin.connect();
  onTestFinished(() => admin.disconnect());
  proxy.blackhole();
  const since = performance.now();
  await expect(admin.describeCluster()).rejects.toThrow();
  expect(performance.now() - since).toBeLessThan(10_000);
});

test('a silent broker is not connected to, by any client of the application, until it answers again', async () => {
  const newKafka = kafkaClients({ brokers, ...PATIENT });
  const first = newKafka().admin();
  await first.connect();
  onTestFinished(() => first.disconnect());
  const kept = newKafka().admin();
  await kept.connect();
  onTestFinished(() => kept.disconnect());
  proxy.blackhole();
  await expect(first.describeCluster()).rejects.toThrow();
  const second = newKafka().admin();
  const since = performance.now();
  await expect(second.connect()).rejects.toThrow('takes connections and does not answer');
  expect(performance.now() - since).toBeLessThan(1000);
  await proxy.heal();
  await until(
    () =>
      second.connect().then(
        () => true,
        () => false,
      ),
    { what: 'a client to connect again', timeoutMs: 15_000 },
  );
  onTestFinished(() => second.disconnect());
  expect((await second.describeCluster()).brokers).toHaveLength(1);
});

test('a broker that answers others keeps the connection on which it is silent: a join waits as long as the group takes', async () => {
  const newKafka = kafkaClients({ brokers, logLevel: logLevel.NOTHING });
  const admin = newKafka().admin();
  await admin.connect();
  onTestFinished(() => admin.disconnect());
  await admin.createTopics({ topics: [{ topic: 'orders' }], waitForLeaders: true });
  const member = async () => {
    const consumer = newKafka().consumer({
      groupId: 'billing',
      sessionTimeout: 30_000,
      maxWaitTimeInMs: 100,
    });
    const crashes: Error[] = [];
    consumer.on('consumer.crash', ({ payload }) => crashes.push(payload.error));
    await consumer.connect();
    await consumer.subscribe({ topics: ['orders'], fromBeginning: true });
    onTestFinished(() => consumer.disconnect());
    return { consumer, crashes };
  };
  // A member whose handler holds the join up for longer than a silent broker is given.
  const busy = await member();
  let release = () => {};
  const held = new Promise<void>((resolve) => (release = resolve));
  let isBusy = false;
  await busy.consumer.run({
    eachMessage: async () => {
      isBusy = true;
      await held;
    },
  });
  const producer = newKafka().producer();
  await producer.connect();
  onTestFinished(() => producer.disconnect());
  await producer.send({ topic: 'orders', messages: [{ value: '1' }] });
  await until(() => isBusy, { what: 'the first member to be busy' });
  const late = await member();
  const since = performance.now();
  setTimeout(() => release(), 8000);
  await late.consumer.run({ eachMessage: async () => undefined }); // joins
  expect(performance.now() - since).toBeGreaterThan(7000);
  expect(late.crashes).toEqual([]);
}, 60_000);

test.each(['refuses further connections', 'answers them, in whatever form'] as const)(
  'a broker that %s is not silent: the connection on which an answer is waited for stays',
  async (manner) => {
    const asked: Socket[] = [];
    const server = createServer((socket) => {
      asked.push(socket);
      if (asked.length > 1) socket.once('data', () => socket.end('whatever'));
    });
    await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
    onTestFinished(() => {
      server.close();
      asked.forEach((socket) => socket.destroy());
    });
    const { port } = server.address() as AddressInfo;
    const { socketFactory } = new SilentBrokers({ brokers: [`127.0.0.1:${port}`], logLevel: logLevel.NOTHING });
    const socket = socketFactory({ host: '127.0.0.1', port, ssl: null as never, onConnect: () => undefined });
    onTestFinished(() => void socket.destroy());
    await until(() => asked.length === 1, { what: 'the connection' });
    if (manner === 'refuses further connections') server.close();
    socket.write('a request');
    await sleep(7000); // longer than a silent broker is given
    expect(socket.destroyed).toBe(false);
    expect(asked.length > 1, 'it was asked').toBe(manner !== 'refuses further connections');
  },
  20_000,
);
