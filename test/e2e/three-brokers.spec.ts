import { setTimeout as sleep } from 'node:timers/promises';
import { logLevel, type Admin, type Kafka } from 'kafkajs';
import { afterAll, beforeAll, expect, onTestFinished, test } from 'vitest';
import { currentDelivery } from 'nestjs-kafka-idempotency';
import { until } from 'nestjs-kafka-idempotency/testing';
import { kafkaClients } from '#src/kafka/kafka-client.js';
import { startEmbeddedKafka, type EmbeddedKafka } from '../services/embedded-kafka.js';
import { committedRecords } from './kit/committed-records.js';
import { Flow } from './kit/flow.js';
import { exactlyOnceHandler } from './kit/handlers.js';
import { testService, testWorld } from './kit/in-test.js';
import { KeptLog } from './kit/log.js';
import { expectOnceInOrder, numberedHandler, startsOnLostPartitions } from './kit/numbered.js';
import { parkedRows } from './kit/parked.js';
import type { RunningService } from './kit/service.js';
import type { World } from './kit/world.js';

// Their leaders are moved and they are killed here, so the three are these tests' own.
let kafka: EmbeddedKafka;
beforeAll(async () => {
  kafka = await startEmbeddedKafka({ brokers: 3 });
});
afterAll(() => kafka.close());

const PARTITIONS = 6;

test('moved leaders with a backlog in the lanes: every acknowledged record is handled once and in order, while a member comes and goes', async () => {
  const world = await testWorld({ brokers: kafka.brokers });
  const topic = await world.topic(PARTITIONS);
  const service = () =>
    testService(world, {
      controllers: [numberedHandler(topic, 10)],
      options: { kafka: { consumer: { groupId: world.group, sessionTimeout: 3000, heartbeatInterval: 300 } } },
    });
  const members = [await service()];
  const handled = () => members.reduce((sum, member) => sum + member.named('processed').length, 0);
  const flow = testFlow(topic, (acknowledged) => acknowledged * PARTITIONS - handled() < 1500);
  const backlog = () => flow.acknowledged * PARTITIONS - handled();
  await until(() => handled() > 0 && backlog() > 1000, { what: 'a backlog in the lanes', timeoutMs: 30_000 });

  const comings = { over: false };
  const guest = (async () => {
    while (!comings.over) {
      const member = await service();
      members.push(member);
      await sleep(4000);
      await member.close();
      await sleep(2000);
    }
  })();
  const leaderOf = (partition: number, round: number) => 1 + ((partition + round) % 3);
  for (let move = 0; move < 18; move += 1) {
    const partition = move % PARTITIONS;
    const target = leaderOf(partition, Math.floor(move / PARTITIONS) + 1);
    await moveLeader(topic, partition, target);
    expect(backlog(), 'the backlog').toBeGreaterThan(100);
    await sleep(1500); // the pace of the moves
  }
  comings.over = true;
  await guest;
  const each = await flow.stop();
  await world.untilAtEnd(topic, 90_000);
  await expectOnceInOrder(world, PARTITIONS, each);
  expect(members.flatMap(startsOnLostPartitions)).toEqual([]);
  expect(members.flatMap((member) => member.named('gap'))).toEqual([]);
  expect(await parkedRows(world)).toEqual([]);
}, 300_000);

test('F15 each broker of three killed in turn, the coordinator first: progress within 30 s, no crash loop, every acknowledged record once and in order', async () => {
  const world = await testWorld({ brokers: kafka.brokers });
  const topic = await world.topic(PARTITIONS, '', { replicas: 3, config: { 'min.insync.replicas': '2' } });
  const log = new KeptLog();
  const service = await testService(world, {
    controllers: [numberedHandler(topic, 5)],
    logger: log,
    options: { kafka: { consumer: { groupId: world.group, sessionTimeout: 3000, heartbeatInterval: 300 } } },
  });
  const handled = () => service.named('processed').length;
  const flow = testFlow(topic, (acknowledged) => acknowledged * PARTITIONS - handled() < 400);
  await until(() => handled() > 200, { what: 'the work to be under way', timeoutMs: 30_000 });

  const first = await coordinatorOf(world);
  for (const id of [first, ...[1, 2, 3].filter((other) => other !== first)]) {
    log.log(`node ${id} is killed`);
    await kafka.node(id).kill();
    const killedAt = performance.now();
    const before = flow.acknowledged;
    await until(() => handledOfAll(service, before), {
      what: `every partition to go on after the kill of node ${id}`,
      timeoutMs: 45_000,
    });
    const seconds = (performance.now() - killedAt) / 1000;
    log.log(`every partition goes on ${seconds.toFixed(1)} s after the kill of node ${id}`);
    expect(seconds, `after the kill of node ${id}`).toBeLessThan(30);
    await kafka.node(id).start();
    await until(() => isInSync(topic), { what: 'all replicas to be in sync', timeoutMs: 30_000 });
  }
  const each = await flow.stop();
  await world.untilAtEnd(topic, 90_000);
  await expectOnceInOrder(world, PARTITIONS, each);
  expect(log.with('CONSUMER_CRASHED').length).toBeLessThanOrEqual(6);
  expect(await parkedRows(world)).toEqual([]);
  expect(service.server.health()).toMatchObject({ live: true, ready: true });
}, 300_000);

test('each broker of three killed in turn under an exactly-once handler: both outputs of each record once', async () => {
  const world = await testWorld({ brokers: kafka.brokers });
  const replicated = { replicas: 3, config: { 'min.insync.replicas': '2' } };
  const topic = await world.topic(PARTITIONS, '', replicated);
  const to = await world.topic(PARTITIONS, 'out', replicated);
  const service = await testService(world, {
    controllers: [
      exactlyOnceHandler(
        topic,
        async (_, publisher) => {
          const { partition, offset } = currentDelivery()!;
          for (const other of [1, 3])
            // by another leader, as a rule
            await publisher.publish(to, '', {
              key: `${partition}@${offset}`,
              partition: (partition + other) % PARTITIONS,
            });
        },
        { maxSize: 50 },
      ),
    ],
    options: { kafka: { consumer: { groupId: world.group, sessionTimeout: 3000, heartbeatInterval: 300 } } },
  });
  const handled = () => service.named('processed').length;
  const flow = testFlow(topic, (acknowledged) => acknowledged * PARTITIONS - handled() < 400);
  const reached = () => new Map(service.named('processed').map(({ partition, offset }) => [partition, Number(offset)]));
  await until(() => reached().size === PARTITIONS, { what: 'the work to be under way', timeoutMs: 30_000 });
  for (const id of [1, 2, 3]) {
    await kafka.node(id).kill();
    const before = reached();
    const isFurther = (partition: number) => (reached().get(partition) ?? -1) > (before.get(partition) ?? -1) + 20;
    await until(() => [...before.keys()].every(isFurther), {
      what: `every partition to go on after the kill of node ${id}`,
      timeoutMs: 60_000,
    });
    await kafka.node(id).start();
    await until(() => isInSync(topic), { what: 'all replicas to be in sync', timeoutMs: 30_000 });
  }
  await flow.stop();
  await world.untilAtEnd(topic, 90_000);
  const ends = await withAdmin((admin) => admin.fetchTopicOffsets(topic));
  const expected = ends.flatMap(({ partition, high }) =>
    Array.from({ length: Number(high) }, (_, offset) => `${partition}@${offset}`),
  );
  const found = (await committedRecords(world, to)).map(({ key }) => key!);
  expect([...found].sort()).toEqual([...expected, ...expected].sort());
  expect(await parkedRows(world)).toEqual([]);
}, 300_000);

test('F15 a frozen coordinator, which takes connections and answers nothing: progress within 30 s', async () => {
  const world = await testWorld({ brokers: kafka.brokers });
  const topic = await world.topic(PARTITIONS, '', { replicas: 3, config: { 'min.insync.replicas': '2' } });
  const service = await testService(world, {
    controllers: [numberedHandler(topic, 5)],
    options: {
      kafka: {
        consumer: { groupId: world.group, sessionTimeout: 3000, heartbeatInterval: 300 },
      },
    },
  });
  const handled = () => service.named('processed').length;
  const flow = testFlow(topic, (acknowledged) => acknowledged * PARTITIONS - handled() < 400);
  await until(() => handled() > 200, { what: 'the work to be under way', timeoutMs: 30_000 });
  const frozen = kafka.node(await coordinatorOf(world));
  frozen.pause();
  onTestFinished(() => frozen.resume());
  const since = performance.now();
  const before = flow.acknowledged;
  await until(() => handledOfAll(service, before), { what: 'every partition to go on', timeoutMs: 60_000 });
  expect((performance.now() - since) / 1000).toBeLessThan(30);
  frozen.resume();
  const each = await flow.stop();
  await world.untilAtEnd(topic, 90_000);
  await expectOnceInOrder(world, PARTITIONS, each);
  expect(await parkedRows(world)).toEqual([]);
}, 180_000);

test('F15 somebody else’s topic without a leader keeps nobody from starting, sending or consuming', async () => {
  const world = await testWorld({ brokers: kafka.brokers });
  const topic = await world.topic(PARTITIONS, '', { replicas: 3, config: { 'min.insync.replicas': '2' } });
  const foreign = world.topicName('.foreign');
  await world.admin.createTopics({
    topics: [{ topic: foreign, replicaAssignment: [{ partition: 0, replicas: [2] }] }],
    waitForLeaders: false,
  });
  await until(async () => (await leadersOf(foreign)).get(0) === 2, { what: 'its leader' });
  await kafka.node(2).kill();
  onTestFinished(() => kafka.node(2).start());
  const areMoved = async () => [...(await leadersOf(topic)).values()].every((leader) => leader !== 2);
  await until(areMoved, { what: 'new leaders', timeoutMs: 30_000 });
  await expect(withAdmin((admin) => admin.listTopics())).rejects.toThrow('no leader');
  const flow = testFlow(topic, (acknowledged) => acknowledged < 40);
  const since = performance.now();
  const service = await testService(world, {
    controllers: [numberedHandler(topic, 0)],
    options: { kafka: { consumer: { groupId: world.group, sessionTimeout: 3000, heartbeatInterval: 300 } } },
  });
  await until(() => handledOfAll(service, 20), { what: 'every partition to be consumed', timeoutMs: 60_000 });
  expect(performance.now() - since).toBeLessThan(30_000);
  expect(service.named('outage')).toEqual([]);
  const each = await flow.stop();
  await world.untilAtEnd(topic, 60_000);
  await expectOnceInOrder(world, PARTITIONS, each);
}, 180_000);

function testFlow(topic: string, wanted: (acknowledged: number) => boolean): Flow {
  const flow = new Flow({ kafka: client, topic, partitions: PARTITIONS, batch: 20, wanted });
  onTestFinished(async () => void (await flow.stop()));
  return flow;
}

/** By ours, for kafkajs alone waits for minutes at a frozen broker. */
function client(): Kafka {
  const retry = { initialRetryTime: 100, maxRetryTime: 1000 };
  return kafkaClients({ brokers: kafka.brokers, logLevel: logLevel.NOTHING, requestTimeout: 5000, retry })();
}

/** With a fresh client: one that lives on asks the leaders and the coordinator of before. */
async function withAdmin<T>(use: (admin: Admin) => Promise<T>): Promise<T> {
  const admin = client().admin();
  await admin.connect();
  try {
    return await use(admin);
  } finally {
    await admin.disconnect();
  }
}

async function moveLeader(topic: string, partition: number, target: number): Promise<void> {
  await withAdmin((admin) =>
    admin.alterPartitionReassignments({
      topics: [{ topic, partitionAssignment: [{ partition, replicas: [target] }] }],
    }),
  );
  await until(async () => (await leadersOf(topic)).get(partition) === target, {
    what: `node ${target} to lead ${topic}[${partition}]`,
    timeoutMs: 30_000,
    intervalMs: 100,
  });
}

async function leadersOf(topic: string): Promise<Map<number, number>> {
  const { topics } = await withAdmin((admin) => admin.fetchTopicMetadata({ topics: [topic] }));
  return new Map(topics[0]?.partitions.map(({ partitionId, leader }) => [partitionId, leader]));
}

async function isInSync(topic: string): Promise<boolean> {
  const { topics } = await withAdmin((admin) => admin.fetchTopicMetadata({ topics: [topic, '__consumer_offsets'] }));
  return topics.every(({ partitions }) => partitions.every(({ isr }) => isr.length === 3));
}

/** Kafka keeps a group's offsets in the partition that its name's hash, as Java makes it, names. */
async function coordinatorOf({ group }: World): Promise<number> {
  const leaders = await leadersOf('__consumer_offsets');
  let hash = 0;
  for (const char of group) hash = (Math.imul(hash, 31) + char.charCodeAt(0)) | 0;
  return leaders.get((hash & 0x7fffffff) % leaders.size)!;
}

/** A record of each partition that was acknowledged after the first `from` has been handled. */
function handledOfAll(service: RunningService, from: number): boolean {
  const reached = new Set<number>();
  for (const { partition, eventId } of service.named('processed'))
    if (Number(eventId?.split('-')[1]) >= from) reached.add(partition);
  return reached.size === PARTITIONS;
}
