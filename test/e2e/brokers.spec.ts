import { setTimeout as sleep } from 'node:timers/promises';
import type { Consumer, PartitionAssigner } from 'kafkajs';
import { afterAll, beforeAll, beforeEach, expect, onTestFinished, test } from 'vitest';
import { until } from 'nestjs-kafka-idempotency/testing';
import { startProxiedKafka, type ProxiedKafka } from '../services/proxied-kafka.js';
import { eventHandler, Gate, writeEffect } from './kit/handlers.js';
import { testProxy, testService, testWorker, testWorld } from './kit/in-test.js';
import { KeptLog } from './kit/log.js';
import { parkedRows } from './kit/parked.js';
import type { RunningService, ServiceOptions } from './kit/service.js';
import type { World } from './kit/world.js';

// The broker is taken away here, and the network in front of it made bad, so it is these tests' own.
let broker: ProxiedKafka;
beforeAll(async () => {
  broker = await startProxiedKafka();
});
afterAll(() => broker.close());
beforeEach(() => broker.proxies[0]!.heal());

const SESSION = 1500;
/** Of Kafka's protocol. */
const HEARTBEAT = 12;
const ILLEGAL_GENERATION = 22;
const NOT_COORDINATOR = 16;

/** The test itself goes past the proxy. */
const ownWorld = (): Promise<World> => testWorld({ brokers: broker.kafka.brokers });
/** As a service sees it that comes by the proxy. */
const proxied = (world: World) => ({
  brokers: broker.brokers,
  schema: world.schema,
  group: world.group,
  databaseUrl: world.databaseUrl,
});

function serviceOn(world: World, topic: string, more: Partial<ServiceOptions> = {}): Promise<RunningService> {
  return testService(proxied(world), {
    controllers: [eventHandler(topic, ({ id }, tools) => writeEffect(tools, id))],
    options: { kafka: { consumer: { groupId: world.group, sessionTimeout: SESSION, heartbeatInterval: 300 } } },
    ...more,
  });
}

const told = (service: RunningService, name: 'outage' | 'recovered') =>
  service.named(name).map(({ code, detail }) => ({ code, detail }));
const events = (from: number, to: number) => Array.from({ length: to - from }, (_, at) => ({ id: `e${from + at}` }));
const ids = (from: number, to: number) => events(from, to).map(({ id }) => id);

/** A busy machine may miss a heartbeat before, so only the last word counts. */
function expectAway(service: RunningService): void {
  expect(told(service, 'outage').at(-1)).toMatchObject({ code: 'BROKER_UNAVAILABLE' });
  expect(told(service, 'outage')).toHaveLength(told(service, 'recovered').length + 1);
}

async function passing(ms: number): Promise<void> {
  await sleep(ms); // the length of the outage is the point
}

test('F16 B28 a broker that is away for several sessions: live but not ready, no exit, no busy loop, and consuming again when it is back', async () => {
  const world = await ownWorld();
  const topic = await world.topic();
  const service = await serviceOn(world, topic);
  await world.send(topic, ...events(0, 3));
  await world.untilCommitted(topic, 3);
  await broker.kafka.kill();
  await until(() => !service.server.health().ready, { what: 'readiness to go', timeoutMs: 10_000 });
  const cpu = process.cpuUsage();
  for (let session = 0; session < 6; session += 1) {
    await passing(SESSION);
    expect(service.server.health()).toMatchObject({ live: true, ready: false });
  }
  const { user, system } = process.cpuUsage(cpu);
  expect((user + system) / 1000).toBeLessThan(3000); // of 9,000 ms
  expectAway(service);

  await broker.kafka.start();
  await world.send(topic, ...events(3, 6));
  await until(async () => (await world.effects()).length === 6, { what: 'the rest', timeoutMs: 60_000 });
  await world.untilAtEnd(topic);
  await until(() => service.server.health().ready, { what: 'readiness' });
  expect(told(service, 'recovered')).toHaveLength(told(service, 'outage').length);
  expect(await world.effects()).toEqual(ids(0, 6));
  expect(service.server.health()).toMatchObject({ live: true, ready: true, reasons: [] });
  expect(await parkedRows(world)).toEqual([]);
}, 120_000);

test('B07 an offset commit that is answered ILLEGAL_GENERATION after the transaction is no failure: it is written again, the handler is not run again', async () => {
  const world = await ownWorld();
  const topic = await world.topic();
  const service = await serviceOn(world, topic);
  await world.untilCommitted(topic, 0);
  const refused = broker.proxies[0]!.answerCommitWith(ILLEGAL_GENERATION);
  await world.send(topic, { id: 'e1' });
  await until(() => refused.hits === 1, { what: 'the refusal' });
  await world.untilCommitted(topic, 1);
  expect(await world.effects()).toEqual(['e1']);
  expect(service.named('received')).toHaveLength(1);
  expect(service.failures).toEqual([]);
  expect(await parkedRows(world)).toEqual([]);
  expect(service.server.health()).toMatchObject({ live: true, ready: true, reasons: [] });
});

test('B07 with every offset commit refused, the work goes on, and the next owner skips all of it', async () => {
  const world = await ownWorld();
  const topic = await world.topic();
  const service = await serviceOn(world, topic);
  await world.untilCommitted(topic, 0);
  const refused = broker.proxies[0]!.answerCommitWith(ILLEGAL_GENERATION, { times: Infinity });
  await world.send(topic, ...events(0, 10));
  await world.untilEffects(10);
  await until(() => refused.hits > 0, { what: 'a refusal' });
  expect(service.server.health()).toMatchObject({ live: true, ready: true });
  await service.close();
  expect(await world.committed(topic)).toBe(0n);
  refused.disarm();
  const second = await serviceOn(world, topic);
  await world.untilCommitted(topic, 10);
  expect(second.named('duplicate')).toHaveLength(10);
  expect(await world.effects()).toEqual(ids(0, 10));
  expect([...service.failures, ...second.failures]).toEqual([]);
});

test('offset commits that are refused for a session, while heartbeats are answered, end with a new client: their coordinator has moved', async () => {
  const world = await ownWorld();
  const topic = await world.topic();
  const service = await serviceOn(world, topic);
  await world.untilCommitted(topic, 0);
  const refused = broker.proxies[0]!.answerCommitWith(NOT_COORDINATOR, { times: Infinity });
  await world.send(topic, ...events(0, 3));
  await until(() => service.named('assigned').length > 1, { what: 'a new client', timeoutMs: 30_000 });
  refused.disarm();
  await world.untilCommitted(topic, 3);
  expect(await world.effects()).toEqual(ids(0, 3));
  expect(service.failures).toEqual([]);
});

/** One that our members cannot be in a group with. */
const strange: PartitionAssigner = () => ({
  name: 'strange',
  version: 1,
  protocol: () => ({ name: 'strange', metadata: Buffer.alloc(0) }),
  assign: () => Promise.resolve([]),
});

test('B04 B28 a Kafka client that crashed for good: not ready within a second, told, and built anew once it can be', async () => {
  const world = await ownWorld();
  const topic = await world.topic();
  const stranger = world.kafka.consumer({
    groupId: world.group,
    partitionAssigners: [strange],
  });
  onTestFinished(() => stranger.disconnect());
  await stranger.connect();
  await stranger.subscribe({ topic });
  await stranger.run({ eachMessage: () => Promise.resolve() });
  await until(async () => (await world.admin.describeGroups([world.group])).groups[0]?.state === 'Stable', {
    what: 'the stranger in the group',
  });
  const log = new KeptLog();
  const service = await serviceOn(world, topic, { logger: log });
  await until(() => log.with('CONSUMER_CRASHED').length >= 2, { what: 'two crashes', timeoutMs: 20_000 });
  expect(service.server.health()).toMatchObject({ live: true, ready: false });
  expect(service.server.health().reasons).toContainEqual(expect.objectContaining({ code: 'CONSUMER_CRASHED' }));
  expectAway(service);
  await stranger.disconnect();
  await world.send(topic, { id: 'a' });
  await world.untilCommitted(topic, 1);
  expect(await world.effects()).toEqual(['a']);
  await until(() => service.server.health().ready, { what: 'readiness' });
  expect(told(service, 'recovered')).toHaveLength(told(service, 'outage').length);
}, 90_000);

test('B04 a running consumer whose client crashes lets its handler end, begins nothing, is not ready within a second, and consumes again', async () => {
  const world = await ownWorld();
  const topic = await world.topic();
  const gate = new Gate();
  onTestFinished(() => gate.open());
  const service = await serviceOn(world, topic, {
    controllers: [
      eventHandler(topic, async ({ id }, tools) => {
        await writeEffect(tools, id);
        if (id === 'a') await gate.passed;
      }),
    ],
  });
  await world.send(topic, { id: 'a' }, { id: 'b' });
  await until(() => service.named('received').length === 1, { what: 'the handler to run' });
  const [consumer] = service.server.unwrap<[Consumer]>();
  let crashedAt = 0;
  consumer.on('consumer.crash', () => (crashedAt = performance.now()));
  broker.proxies[0]!.refuse();
  broker.proxies[0]!.reset();
  await until(() => crashedAt > 0, { what: 'the crash', timeoutMs: 40_000 });
  await until(() => !service.server.health().ready, { what: 'readiness to go', timeoutMs: 1000 });
  expect(service.named('received')).toHaveLength(1);
  await broker.proxies[0]!.heal();
  gate.open();
  await world.untilCommitted(topic, 2);
  expect((await world.effects()).sort()).toEqual(['a', 'b']);
  expect(await parkedRows(world)).toEqual([]);
}, 120_000);

test('F18 a worker cut off from Kafka begins nothing after its session, another one takes over, and each effect stays one', async () => {
  const world = await ownWorld();
  const topic = await world.topic(2);
  const handlers = [
    eventHandler(topic, async ({ id }, tools) => {
      await writeEffect(tools, id);
      await sleep(50); // slow, so that the cut finds work under way
    }),
  ];
  const cutOff = await serviceOn(world, topic, { controllers: handlers });
  await world.send(topic, ...events(0, 200).map((event, at) => ({ ...event, partition: at % 2 })));
  await world.untilEffects(10);
  broker.proxies[0]!.blackhole();
  const second = testWorker(world, { topic, handlerMs: 10 });
  await until(() => second.calls.length > 20, { what: 'the second to take over', timeoutMs: 30_000 });
  const begun = cutOff.named('received').length;
  expect(cutOff.server.health()).toMatchObject({ live: true, ready: false });
  expectAway(cutOff);
  await world.untilAtEnd(topic, 60_000);
  expect(cutOff.named('received')).toHaveLength(begun);
  expect((await world.effects()).sort()).toEqual(ids(0, 200).sort());
  await broker.proxies[0]!.heal();
  await until(() => cutOff.named('assigned').length > 1, { what: 'it to be a member again', timeoutMs: 45_000 });
  for (const partition of [0, 1]) expect(await world.committed(topic, partition)).toBe(100n); // nothing of what it had to commit came through
  await world.send(topic, ...[0, 1].map((partition) => ({ id: `last-${partition}`, partition })));
  await world.untilAtEnd(topic);
  expect(await world.effects()).toHaveLength(202);
}, 150_000);

test('F20 a half-open connection to Kafka is given up, and consuming goes on', async () => {
  const world = await ownWorld();
  const topic = await world.topic();
  const service = await serviceOn(world, topic, {
    options: {
      kafka: {
        client: { brokers: broker.brokers, requestTimeout: 2000, connectionTimeout: 1000 },
        consumer: { groupId: world.group, sessionTimeout: SESSION, heartbeatInterval: 300 },
      },
    },
  });
  await world.send(topic, { id: 'e0' });
  await world.untilCommitted(topic, 1);
  broker.proxies[0]!.blackhole('toClient');
  await world.send(topic, ...events(1, 4));
  await until(() => told(service, 'outage').length > 0, { what: 'the outage to be noticed', timeoutMs: 10_000 });
  expect(service.server.health()).toMatchObject({ live: true, ready: false });
  await passing(2 * SESSION);
  await broker.proxies[0]!.heal();
  await until(async () => (await world.effects()).length === 4, { what: 'the rest', timeoutMs: 60_000 });
  await world.untilAtEnd(topic);
  await until(() => service.server.health().ready, { what: 'readiness' });
  expect(await world.effects()).toEqual(ids(0, 4));
}, 120_000);

test.each([
  ['500 ms and up to 200 more', 30, () => broker.proxies[0]!.delay(250, 100)],
  // What is fetched at once holds up the heartbeats behind it: it has to fit into a session.
  ['1 KB/s', 5, () => broker.proxies[0]!.throttle(1024)],
] as const)(
  'F21 a network to Kafka of %s makes it slow, not wrong: heartbeats go on and nobody joins anew',
  async (_what, count, worsen) => {
    const world = await ownWorld();
    const topic = await world.topic();
    const sessionTimeout = 4 * SESSION;
    const service = await serviceOn(world, topic, {
      options: { kafka: { consumer: { groupId: world.group, sessionTimeout, heartbeatInterval: 500 } } },
    });
    await world.send(topic, { id: 'e0' });
    await world.untilCommitted(topic, 1);
    const proxy = broker.proxies[0]!;
    worsen();
    const before = proxy.requests(HEARTBEAT);
    await world.send(topic, ...events(1, count + 1).map((event) => ({ ...event, payload: { pad: 'x'.repeat(500) } })));
    await world.untilCommitted(topic, count + 1);
    await until(() => proxy.requests(HEARTBEAT) >= before + 5, { what: 'heartbeats', timeoutMs: 20_000 });
    expect(service.named('assigned')).toHaveLength(1);
    expect(told(service, 'outage')).toEqual([]);
    expect(await world.effects()).toEqual(ids(0, count + 1));
    await proxy.heal();
  },
);

test('F21 a database at 1 KB/s makes it slow, not wrong: heartbeats go on and nobody joins anew', async () => {
  const world = await ownWorld();
  const topic = await world.topic();
  const database = await testProxy(world);
  const service = await serviceOn(world, topic, { databaseUrl: database.url });
  await world.send(topic, { id: 'e0' });
  await world.untilCommitted(topic, 1);
  database.throttle(1024);
  await world.send(topic, ...events(1, 6));
  await world.untilCommitted(topic, 6);
  await database.heal();
  expect(service.named('assigned')).toHaveLength(1);
  expect([...service.failures, ...told(service, 'outage')]).toEqual([]);
  expect(await world.effects()).toEqual(ids(0, 6));
});

test('B22 a dead-letter topic that does not exist refuses the start, by name', async () => {
  const world = await ownWorld();
  const topic = await world.topic();
  const missing = world.topicName('.dead');
  const starting = serviceOn(world, topic, { options: { deadLetters: { topic: missing } } });
  await expect(starting).rejects.toMatchObject({ code: 'TOPIC_MISSING' });
  await expect(starting).rejects.toThrow(missing);
});

test('B22 a topic that is made ten seconds after the start is consumed', async () => {
  const world = await ownWorld();
  const topic = world.topicName();
  const service = await serviceOn(world, topic);
  await sleep(10_000); // how late the topic comes is the point
  expect(service.server.health()).toMatchObject({ live: true, ready: false, reasons: [{ code: 'TOPIC_MISSING' }, {}] });
  await world.createTopic(topic);
  await world.send(topic, { id: 'a' });
  await world.untilCommitted(topic, 1);
  expect(await world.effects()).toEqual(['a']);
  expect(service.server.health()).toMatchObject({ ready: true, reasons: [] });
});
