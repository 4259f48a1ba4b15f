import { expect, onTestFinished, test } from 'vitest';
import type { Consumer } from 'kafkajs';
import { until } from 'nestjs-kafka-idempotency/testing';
import { eventHandler, Gate, writeEffect } from './kit/handlers.js';
import { testService, testWorld } from './kit/in-test.js';
import { KeptLog } from './kit/log.js';
import { expectOnceInOrder, numbered, numberedHandler, sendNumbered } from './kit/numbered.js';
import type { RunningService } from './kit/service.js';
import type { World } from './kit/world.js';

const ids = (from: number, to: number) => Array.from({ length: to - from }, (_, at) => `e${from + at}`);
const events = (from: number, to: number) => ids(from, to).map((id) => ({ id }));
type Policy = 'earliest' | 'fail';

function serviceOn(world: World, topic: string, policy: Policy = 'earliest'): Promise<RunningService> {
  return testService(world, {
    controllers: [eventHandler(topic, ({ id }, tools) => writeEffect(tools, id))],
    options: { kafka: { offsetOutOfRange: policy } },
  });
}

/** 100 records of which the first 50 are gone, and a group that stands at 5. */
async function standAtFive(world: World): Promise<string> {
  const topic = await world.topic();
  await world.send(topic, ...events(0, 100));
  await world.admin.setOffsets({ groupId: world.group, topic, partitions: [{ partition: 0, offset: '5' }] });
  await deleteRecords(world, topic, 50);
  return topic;
}

async function deleteRecords(world: World, topic: string, until: number): Promise<void> {
  await world.admin.deleteTopicRecords({ topic, partitions: [{ partition: 0, offset: String(until) }] });
}

async function expectStopped(world: World, service: RunningService, topic: string, at: bigint): Promise<void> {
  const health = await until(
    () => {
      const found = service.server.health();
      return found.reasons.some(({ code }) => code === 'OFFSET_OUT_OF_RANGE') && found;
    },
    { what: 'the stop' },
  );
  expect(health).toMatchObject({ live: true, ready: false, partitions: [{ state: 'stopped' }] });
  await world.untilCommitted(topic, at);
}

test('F45 B54 earliest: a service that starts behind deleted records goes on at the first one there is, and says what is missing', async () => {
  const world = await testWorld();
  const topic = await standAtFive(world);
  const service = await serviceOn(world, topic, 'earliest');
  await world.untilCommitted(topic, 100);
  expect(await world.effects()).toEqual(ids(50, 100));
  expect(service.named('gap')).toEqual([{ name: 'gap', topic, partition: 0, from: '5', to: '50' }]);
});

test('F45 B54 fail: a service that starts behind deleted records is not ready, handles nothing and leaves the group where it stands', async () => {
  const world = await testWorld();
  const topic = await standAtFive(world);
  const service = await serviceOn(world, topic, 'fail');
  await expectStopped(world, service, topic, 5n);
  await service.close();
  expect(await world.committed(topic)).toBe(5n);
  expect(await world.effects()).toEqual([]);
  expect(service.named('gap')).toMatchObject([{ from: '5', to: '50' }]);
});

/** A service at 5 whose next 45 records are gone before it fetches them. */
async function overtaken(world: World, policy: Policy): Promise<{ topic: string; service: RunningService }> {
  const topic = await world.topic();
  await world.send(topic, ...events(0, 5));
  const service = await serviceOn(world, topic, policy);
  await world.untilCommitted(topic, 5);
  service.server.pause(topic);
  await world.send(topic, ...events(5, 100));
  await deleteRecords(world, topic, 50);
  service.server.resume(topic);
  return { topic, service };
}

test('F45 B54 earliest: records deleted in front of a running service are told, and it goes on behind them', async () => {
  const world = await testWorld();
  const { topic, service } = await overtaken(world, 'earliest');
  await world.untilCommitted(topic, 100);
  expect(await world.effects()).toEqual([...ids(0, 5), ...ids(50, 100)]);
  expect(service.named('gap')).toMatchObject([{ from: '5', to: '50' }]);
  expect(service.server.health()).toMatchObject({ ready: true, reasons: [] });
});

test('F45 B54 fail: records deleted in front of a running service stop its partition, and the group stands where it did', async () => {
  const world = await testWorld();
  const { topic, service } = await overtaken(world, 'fail');
  await expectStopped(world, service, topic, 5n); // kafkajs had written -2 over it
  await service.close();
  expect(await world.committed(topic)).toBe(5n);
  expect(await world.effects()).toEqual(ids(0, 5));
  expect(service.named('gap')).toMatchObject([{ from: '5', to: '50' }]);
});

test.each(['earliest', 'fail'] as const)(
  'F45 %s: while a record is being tried, deleted records behind it cost no requests and leave the group its offset; then the policy decides',
  async (policy) => {
    const world = await testWorld();
    const topic = await world.topic();
    const gate = new Gate();
    onTestFinished(() => gate.open());
    await world.send(topic, ...events(0, 5));
    const service = await testService(world, {
      options: { kafka: { offsetOutOfRange: policy } },
      controllers: [
        eventHandler(topic, async ({ id }, tools) => {
          if (id === 'e3') await gate.passed;
          await writeEffect(tools, id);
        }),
      ],
    });
    await world.untilCommitted(topic, 3);
    const [consumer] = service.server.unwrap<[Consumer]>();
    service.server.pause(topic);
    await world.send(topic, ...events(5, 100));
    await deleteRecords(world, topic, 50);
    service.server.resume(topic);
    let commits = 0;
    consumer.on('consumer.network.request', ({ payload }) => {
      if (payload.apiName === 'OffsetCommit') commits += 1;
    });
    await until(() => commits > 0, { what: 'kafkajs to reset the offset' });
    await world.untilCommitted(topic, 3);
    const before = commits;
    const since = performance.now();
    await until(() => performance.now() - since > 1500, { what: 'some time' });
    expect(commits - before).toBeLessThan(3);
    expect(await world.committed(topic)).toBe(3n);

    gate.open();
    if (policy === 'fail') await expectStopped(world, service, topic, 5n);
    else await world.untilCommitted(topic, 100);
    expect(await world.effects()).toEqual([...ids(0, 5), ...(policy === 'fail' ? [] : ids(50, 100))]);
    expect(service.named('gap')).toMatchObject([{ from: '5', to: '50' }]);
  },
);

test('F46 a group that was deleted between two runs is read from the first record there is, each effect stays one, and it is told', async () => {
  const world = await testWorld();
  const topic = await world.topic();
  await world.send(topic, ...events(0, 20));
  const first = await serviceOn(world, topic);
  await world.untilCommitted(topic, 20);
  await first.close();
  await world.admin.deleteGroups([world.group]);
  await world.send(topic, ...events(20, 25));
  const log = new KeptLog();
  const second = await testService(world, {
    logger: log,
    controllers: [eventHandler(topic, ({ id }, tools) => writeEffect(tools, id))],
  });
  await world.untilCommitted(topic, 25);
  expect(await world.effects()).toEqual(ids(0, 25));
  expect(second.named('duplicate')).toHaveLength(20);
  expect(second.named('gap')).toEqual([{ name: 'gap', topic, partition: 0, from: '-1', to: '0' }]);
  expect(log.with(topic).filter(({ level }) => level === 'error')).toHaveLength(1);
});

test('F46 a group that is new to a topic, or to its partition without records, is no loss and is not told', async () => {
  const world = await testWorld();
  const [known, fresh] = [await world.topic(2, 'known'), await world.topic(1, 'fresh')];
  await world.send(known, { id: 'a', partition: 0 });
  const first = await serviceOn(world, known);
  await world.untilCommitted(known, 1);
  await first.close();
  await world.admin.deleteGroups([world.group]);
  await world.send(fresh, { id: 'b' });
  const second = await testService(world, {
    controllers: [
      eventHandler(known, ({ id }, tools) => writeEffect(tools, id)),
      eventHandler(fresh, ({ id }, tools) => writeEffect(tools, id), { consumer: 'fresh' }),
    ],
  });
  await world.untilCommitted(known, 1);
  await world.untilCommitted(fresh, 1);
  expect(second.named('gap')).toMatchObject([{ topic: known, partition: 0, from: '-1' }]);
});

test('F48 partitions that are added under load are read from their first record, and nothing is lost', async () => {
  const world = await testWorld();
  const topic = await world.topic(2);
  await sendNumbered(world, topic, 2, 100);
  const service = await testService(world, {
    controllers: [numberedHandler(topic, 5)],
    options: {
      kafka: {
        subscribe: { fromBeginning: false }, // the first records of a new partition come before anybody knows it
        consumer: { groupId: world.group, metadataMaxAge: 1000 },
      },
    },
  });
  await world.untilAtEnd(topic); // behind what was there before the group
  await sendNumbered(world, topic, 2, 50);
  await world.admin.createPartitions({ topicPartitions: [{ topic, count: 4 }] });
  const producer = world.kafka.producer(); // one that lives on does not know the new partitions
  await producer.connect();
  await until(async () => (await world.admin.fetchTopicOffsets(topic)).length === 4, { what: 'the new partitions' });
  const added = [...numbered(2, 50), ...numbered(3, 50)];
  await producer.send({
    topic,
    messages: added.map(({ id, partition, payload }) => ({
      partition,
      value: JSON.stringify({ id, ...payload }),
      headers: { 'event-id': id },
    })),
  });
  await producer.disconnect();
  await world.untilEffects(200);
  await world.untilAtEnd(topic);
  await expectOnceInOrder(world, 4, 50);
  expect(service.named('gap')).toEqual([]);
});

test('F49 B53 three committed transactions and an aborted one at the end: their effects alone, and no lag', async () => {
  const world = await testWorld();
  const topic = await world.topic();
  const producer = world.kafka.producer({ transactionalId: world.group, idempotent: true, maxInFlightRequests: 1 });
  await producer.connect();
  for (let at = 0; at < 4; at += 1) {
    const transaction = await producer.transaction();
    const messages = [0, 1].map((n) => ({ id: `t${at}.${n}` }));
    await transaction.send({
      topic,
      messages: messages.map(({ id }) => ({ value: JSON.stringify({ id }), headers: { 'event-id': id } })),
    });
    await (at < 3 ? transaction.commit() : transaction.abort());
  }
  await producer.disconnect();
  const service = await serviceOn(world, topic);
  await world.untilAtEnd(topic);
  expect(await world.committed(topic)).toBe(12n); // a control record ends each
  expect(await world.effects()).toEqual([0, 1, 2].flatMap((at) => [`t${at}.0`, `t${at}.1`]));
  expect(service.named('gap')).toEqual([]);
});

test('F49 B53 a compacted topic with holes: every living key is handled, a tombstone as null, without a word about gaps', async () => {
  const world = await testWorld();
  const topic = await world.topic(1, '', {
    config: {
      'cleanup.policy': 'compact',
      'min.cleanable.dirty.ratio': '0.01',
      'segment.ms': '200',
      'max.compaction.lag.ms': '500',
      'delete.retention.ms': '600000',
    },
  });
  for (let round = 0; round < 4; round += 1)
    for (const key of ['a', 'b', 'c']) {
      await world.send(topic, { id: `${key}${round}`, key });
      await world.send(topic, { id: `single-${key}${round}`, key: `${key}${round}` });
    }
  await world.sendRaw(topic, { key: 'b', value: null, headers: { 'event-id': 'no-b' } });
  await until(
    async () => {
      await world.send(topic, { id: 'roll', key: 'roll' }); // the segment in use is never compacted
      return !(await storedIds(world, topic)).includes('b2') && !(await storedIds(world, topic)).includes('a2');
    },
    { what: 'compaction', timeoutMs: 45_000, intervalMs: 2000 },
  );
  const stored = await storedIds(world, topic);
  const log = new KeptLog();
  const seen: unknown[] = [];
  const service = await testService(world, {
    logger: log,
    controllers: [eventHandler<{ id: string } | null>(topic, (event) => void seen.push(event))],
  });
  await world.untilAtEnd(topic);
  expect(service.named('processed').map(({ eventId }) => eventId)).toEqual([...new Set(stored)]);
  expect(stored.slice(0, 14)).not.toContain('a0');
  expect(seen).toContain(null);
  expect(service.named('gap')).toEqual([]);
  expect(log.lines.filter(({ level }) => level !== 'log')).toEqual([]);
}, 90_000);

/** Event ids in the order of the log. */
async function storedIds(world: World, topic: string): Promise<string[]> {
  const [end] = await world.admin.fetchTopicOffsets(topic);
  const consumer = world.kafka.consumer({
    groupId: `${world.group}-reader-${performance.now()}`,
    maxWaitTimeInMs: 100,
  });
  await consumer.connect();
  await consumer.subscribe({ topic, fromBeginning: true });
  const found: string[] = [];
  let next = -1n;
  await consumer.run({
    autoCommit: false,
    eachBatchAutoResolve: true,
    eachBatch: async ({ batch }) => {
      for (const { headers } of batch.messages) found.push(String(headers?.['event-id']));
      next = BigInt(batch.lastOffset()) + 1n;
    },
  });
  await until(() => next >= BigInt(end?.high ?? '0'), { what: 'the end of the log' });
  await consumer.disconnect();
  return found;
}

test('B70 an idle consumer costs next to no processor time, and no timer warns', async () => {
  const warnings: string[] = [];
  const hear = (warning: Error) => warnings.push(warning.name);
  process.on('warning', hear);
  onTestFinished(() => void process.off('warning', hear));
  const world = await testWorld();
  const topic = await world.topic(3);
  const service = await serviceOn(world, topic);
  await world.send(topic, { id: 'a', partition: 0 });
  await world.untilCommitted(topic, 1);
  const [from, since] = [process.cpuUsage(), performance.now()];
  await until(() => performance.now() - since > 10_000, {
    what: 'ten idle seconds',
    intervalMs: 500,
    timeoutMs: 20_000,
  });
  const { user, system } = process.cpuUsage(from);
  expect((user + system) / 1000).toBeLessThan(1500); // of 10,000 ms; a timer that spins takes all of them
  expect(warnings).not.toContain('TimeoutNegativeWarning');
  expect(service.server.health()).toMatchObject({ live: true, ready: true, reasons: [] });
}, 60_000);
