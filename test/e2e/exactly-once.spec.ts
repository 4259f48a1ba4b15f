import { setTimeout as sleep } from 'node:timers/promises';
import { Catch, UseFilters, type RpcExceptionFilter } from '@nestjs/common';
import { lastValueFrom, of, type Observable } from 'rxjs';
import { expect, onTestFinished, test } from 'vitest';
import { Idempotent, KafkaExactlyOnce, ParkedEvents, TransactionScope } from 'nestjs-kafka-idempotency';
import { until } from 'nestjs-kafka-idempotency/testing';
import type { Failpoint } from './kit/child.js';
import { committedRecords } from './kit/committed-records.js';
import { eventHandler, exactlyOnceHandler, Gate, writeEffect, type TestEvent } from './kit/handlers.js';
import { testProxy, testService, testWorker, testWorld } from './kit/in-test.js';
import { parkedRows } from './kit/parked.js';
import { seeded } from './kit/seeded.js';
import type { World } from './kit/world.js';

/** What the output holds, in order: events, each with its id in the value. */
async function idsIn(world: World, topic: string): Promise<string[]> {
  const records = await committedRecords(world, topic);
  return records.map(({ value }) => (JSON.parse(value!) as TestEvent).id);
}

/** So many events, and their ids. */
async function sendNumbered(world: World, topic: string, count: number): Promise<string[]> {
  const ids = Array.from({ length: count }, (_, at) => `e${at}`);
  await world.send(topic, ...ids.map((id) => ({ id, key: id })));
  return ids;
}

test('what is published in an exactly-once handler and the offset of its record are committed together, many records in one transaction', async () => {
  const world = await testWorld();
  const [from, to] = [await world.topic(), await world.topic(1, 'out')];
  const ids = await sendNumbered(world, from, 300);
  const service = await testService(world, {
    controllers: [
      exactlyOnceHandler(from, async ({ id }, publisher) => {
        await publisher.publish(to, { id: `${id} first` }, { key: id });
        await publisher.publish(to, { id: `${id} second` }, { key: id });
      }),
    ],
  });
  await world.untilCommitted(from, 300);
  const records = await committedRecords(world, to);
  expect(records.map(({ value }) => (JSON.parse(value!) as TestEvent).id)).toEqual(
    ids.flatMap((id) => [`${id} first`, `${id} second`]),
  );
  expect(new Set(records.map(({ id }) => id)).size).toBe(600);
  expect(service.named('processed')).toHaveLength(300);
  expect(service.named('committed').length).toBeLessThan(20);
});

test('F53 processes killed at every point of their transactions: who reads committed finds the output of 20,000 events once each, in order', async () => {
  const [events, kills, random] = [20_000, 20, seeded(53)];
  const world = await testWorld();
  const [from, to] = [await world.topic(4), await world.topic(2, 'out')];
  const live = (failpoint?: Failpoint) =>
    testWorker(world, { topic: from, forwardTo: to, ...(failpoint === undefined ? {} : { failpoint }) });
  const workers = [live(), live()];
  let [sent, killed] = [0, 0];
  const sending = (async () => {
    while (sent < events || killed < kills) {
      const numbers = Array.from({ length: 50 }, (_, at) => sent + at);
      await world.send(from, ...numbers.map((number) => ({ id: `e${number}`, key: `k${number % 97}` })));
      sent += numbers.length;
      if (killed < kills) await sleep(120); // the pace of the events, so that each life has some
    }
  })();
  for (; killed < kills; killed += 1) {
    const at = killed % workers.length;
    // Half of them at any time, and half with all of a transaction sent and its end not. Never three in a row at one record: that is taken for its fault.
    if (killed % 4 < 2) {
      const victim = workers[at]!;
      await until(() => victim.offsetsOf('committed').length > 4, { what: 'work', timeoutMs: 30_000 });
      await sleep(random() * 500); // at any time is the point
    } else {
      await workers[at]!.kill();
      workers[at] = live({ at: 'committing', nth: 5 + Math.floor(random() * 5) });
      await until(() => !workers[at]!.isRunning, { what: 'its death between send and end', timeoutMs: 30_000 });
    }
    await workers[at]!.kill();
    workers[at] = live();
  }
  await sending;
  await world.untilAtEnd(from, 60_000);
  expect(await world.db.query('SELECT record_offset, reason FROM parked_events')).toEqual([]);
  const records = await committedRecords(world, to);
  const found = records.map(({ value }) => (JSON.parse(value!) as TestEvent).id);
  expect(found.length, 'doubled or missing').toBe(sent);
  expect(new Set(found).size).toBe(sent);
  const last = new Map<string, number>();
  for (const { key, value } of records) {
    const number = Number((JSON.parse(value!) as TestEvent).id.slice(1));
    expect(number, `the order of ${key}`).toBeGreaterThan(last.get(key!) ?? -1);
    last.set(key!, number);
  }
}, 240_000);

test('a handler that fails has sent nothing, and neither has one whose error an exception filter swallows; the record is parked and the others go on', async () => {
  const world = await testWorld();
  const [from, to] = [await world.topic(), await world.topic(1, 'out')];
  @Catch()
  class Swallow implements RpcExceptionFilter {
    catch(): Observable<string> {
      return of('all is well');
    }
  }
  const handler = exactlyOnceHandler(from, async ({ id }, publisher) => {
    await publisher.publish(to, { id });
    if (id === 'e3' || id === 'e70') throw new Error(`no luck with ${id}`);
  });
  UseFilters(Swallow)(handler);
  const ids = await sendNumbered(world, from, 100);
  const service = await testService(world, {
    controllers: [handler],
    options: { retry: { attempts: 2, delay: 10, factor: 1, jitter: 'none' } },
  });
  await world.untilCommitted(from, 100);
  expect((await idsIn(world, to)).sort()).toEqual(ids.filter((id) => id !== 'e3' && id !== 'e70').sort());
  expect(await parkedRows(world)).toMatchObject([
    { offset: '3', state: 'dead', reason: 'exhausted', attempts: 2 },
    { offset: '70', state: 'dead', reason: 'exhausted', attempts: 2 },
  ]);
  expect(service.named('processed')).toHaveLength(98);
});

test('a parked record is replayed outside of any Kafka transaction, under the ids that its output always has', async () => {
  const world = await testWorld();
  const [from, to] = [await world.topic(), await world.topic(1, 'out')];
  const tried: string[] = [];
  let isBroken = true;
  const service = await testService(world, {
    controllers: [
      exactlyOnceHandler(from, async ({ id }, publisher) => {
        tried.push((await publisher.publish(to, { id })).id);
        if (isBroken) throw new Error('no luck');
      }),
    ],
    options: { retry: { attempts: 1 }, parking: { poll: 50 } },
  });
  await world.send(from, { id: 'a' });
  await world.untilCommitted(from, 1);
  expect(await idsIn(world, to)).toEqual([]);
  isBroken = false;
  await service.app.get(ParkedEvents).replay({ state: 'dead' }, { by: 'test' });
  await until(async () => (await parkedRows(world)).length === 0, { what: 'the row to go' });
  expect(await committedRecords(world, to)).toMatchObject([{ id: tried[0] }]);
  expect(new Set(tried).size).toBe(1);
});

test('publish() after the handler has ended, with a dedupeKey, or in a TransactionScope inside of it', async () => {
  const world = await testWorld();
  const [from, to] = [await world.topic(), await world.topic(1, 'out')];
  const late: Promise<unknown>[] = [];
  const gate = new Gate();
  const refused: unknown[] = [];
  let scope: TransactionScope | undefined;
  const service = await testService(world, {
    controllers: [
      exactlyOnceHandler(from, async ({ id }, publisher) => {
        await publisher.publish(to, { id }, { dedupeKey: id }).catch((error: unknown) => refused.push(error));
        await scope!.run(() => publisher.publish(to, { id: `${id} by the outbox` }));
        await lastValueFrom(publisher.emit(to, { value: { id: `${id} by emit` }, key: id }));
        late.push(gate.passed.then(() => publisher.publish(to, { id: `${id} late` })));
      }),
    ],
    options: { outbox: { poll: 50 } },
  });
  scope = service.app.get(TransactionScope);
  await world.send(from, { id: 'a' });
  await world.untilCommitted(from, 1);
  gate.open();
  await expect(late[0]).rejects.toMatchObject({ code: 'NO_TRANSACTION' });
  expect(refused).toMatchObject([{ code: 'OPTIONS_INVALID', message: expect.stringContaining('@KafkaExactlyOnce()') }]);
  await until(async () => (await idsIn(world, to)).length === 2, { what: 'both' });
  expect((await idsIn(world, to)).sort()).toEqual(['a by emit', 'a by the outbox']);
});

test('an exactly-once handler shares its topic with no other: refused at the start, or where a regular expression matches', async () => {
  const world = await testWorld();
  const [from, to] = [await world.topic(), await world.topic(1, 'out')];
  const handler = exactlyOnceHandler(from, ({ id }, publisher) => publisher.publish(to, { id }));
  const other = eventHandler(from, () => undefined, { consumer: 'other' });
  await expect(testService(world, { controllers: [handler, other] })).rejects.toMatchObject({
    code: 'OPTIONS_INVALID',
    message: expect.stringContaining('test, other'),
  });
  const pattern = exactlyOnceHandler(new RegExp(`^${from}$`), () => undefined, { consumer: 'by pattern' });
  const both = [eventHandler(`${from}.elsewhere`, () => undefined, { consumer: 'elsewhere' }), pattern, handler];
  await expect(testService(world, { controllers: both })).rejects.toMatchObject({ code: 'OPTIONS_INVALID' });
  const [first, second] = [pattern, exactlyOnceHandler(new RegExp(`^${from}`), () => undefined, { consumer: 'wide' })];
  const service = await testService(world, { controllers: [first, second] });
  await world.send(from, { id: 'a' });
  await until(() => service.server.health().reasons.some(({ code }) => code === 'OPTIONS_INVALID'), {
    what: 'the partition to stop',
  });
  expect(service.server.health()).toMatchObject({ ready: false, partitions: [{ state: 'stopped', position: '0' }] });
  expect(() => {
    class Twice {
      @Idempotent()
      @KafkaExactlyOnce()
      handle(): void {}
    }
    return Twice;
  }).toThrow(/stands beside @KafkaExactlyOnce\(\)/);
});

test('F33 an owner that was stopped in its transaction and wakes up when another has the partition commits nothing', async () => {
  const world = await testWorld();
  const [from, to] = [await world.topic(), await world.topic(1, 'out')];
  const ids = await sendNumbered(world, from, 40);
  const zombie = testWorker(world, {
    topic: from,
    forwardTo: to,
    failpoint: { at: 'committing', offset: '40', signal: 'SIGSTOP' },
  });
  await until(() => zombie.offsetsOf('received').length === 40, {
    what: 'all in its transaction, and the process stopped',
  });
  const second = testWorker(world, { topic: from, forwardTo: to });
  await world.untilCommitted(from, 40);
  zombie.signal('SIGCONT');
  const more = Array.from({ length: 40 }, (_, at) => `more ${at}`);
  await world.send(from, ...more.map((id) => ({ id, key: id })));
  await world.untilCommitted(from, 80);
  expect(await idsIn(world, to)).toEqual([...ids, ...more]);
  await Promise.all([zombie.kill(), second.kill()]);
});

test('members that come and go in the middle of transactions: the output of each record once', async () => {
  const world = await testWorld();
  const [from, to] = [await world.topic(4), await world.topic(1, 'out')];
  const controllers = [
    exactlyOnceHandler(
      from,
      async ({ id }, publisher) => {
        await publisher.publish(to, { id });
        await sleep(2); // so that every join meets groups at work
      },
      { maxSize: 50 },
    ),
  ];
  await testService(world, { controllers });
  const ids = await sendNumbered(world, from, 2_000);
  for (let round = 0; round < 3; round += 1) {
    const guest = await testService(world, { controllers });
    await until(() => guest.named('processed').length > 0, { what: 'work for the guest', timeoutMs: 20_000 });
    await guest.close();
  }
  await world.untilAtEnd(from);
  expect((await idsIn(world, to)).sort()).toEqual([...ids].sort());
});

test('F54 a transaction that a hung producer leaves open: health, the log and an event say what cannot be read, and then that it can', async () => {
  const world = await testWorld();
  const topic = await world.topic();
  const service = await testService(world, {
    controllers: [eventHandler(topic, ({ id }, tools) => writeEffect(tools, id))],
  });
  const producer = world.kafka.producer({ transactionalId: world.group, idempotent: true, maxInFlightRequests: 1 });
  await producer.connect();
  onTestFinished(() => producer.disconnect());
  const hung = await producer.transaction();
  await hung.send({ topic, messages: [{ value: JSON.stringify({ id: 'hung' }), headers: { 'event-id': 'hung' } }] });
  await world.send(topic, { id: 'behind' });
  const reason = await until(() => service.server.health().reasons.find(({ code }) => code === 'READ_STALLED'), {
    what: 'the reason',
    timeoutMs: 20_000,
  });
  expect(reason.detail).toContain(`${topic}[0] can be read up to offset 0 only, and 2 offsets wait behind it`);
  expect(service.server.health()).toMatchObject({ live: true, ready: true });
  await until(() => service.named('outage').length > 0, { what: 'the event' });
  expect(service.named('outage')).toMatchObject([{ code: 'READ_STALLED' }]);
  expect(await world.effects()).toEqual([]);
  await hung.abort();
  await world.untilAtEnd(topic);
  expect(await world.effects()).toEqual(['behind']);
  await until(() => service.named('recovered').length > 0, { what: 'the end of it' });
  expect(service.server.health().reasons).toEqual([]);
}, 60_000);

test('somebody else commits under the same transactional.id meanwhile: nothing of ours is sent, and the partition goes on from the offset of the group', async () => {
  const world = await testWorld();
  const [from, to] = [await world.topic(), await world.topic(1, 'out')];
  const [began, gate] = [new Gate(), new Gate()];
  const service = await testService(world, {
    controllers: [
      exactlyOnceHandler(from, async ({ id }, publisher) => {
        await publisher.publish(to, { id });
        began.open();
        await gate.passed;
      }),
    ],
  });
  await world.send(from, { id: 'a' });
  await began.passed;
  await world.send(from, { id: 'b' }, { id: 'c' });
  const transactionalId = `${world.group}.${from}.0`;
  const other = world.kafka.producer({ transactionalId, idempotent: true, maxInFlightRequests: 1 });
  await other.connect();
  onTestFinished(() => other.disconnect());
  const transaction = await other.transaction();
  await transaction.send({ topic: to, messages: [{ value: '{"id":"a and b of another"}' }] });
  await transaction.sendOffsets({
    consumerGroupId: world.group,
    topics: [{ topic: from, partitions: [{ partition: 0, offset: '2' }] }],
  });
  await transaction.commit();
  gate.open();
  await world.untilCommitted(from, 3);
  expect(await idsIn(world, to)).toEqual(['a and b of another', 'c']);
  expect(service.named('processed').map(({ offset }) => offset)).toEqual(['2']);
  expect(service.named('revoked')).toMatchObject([{ partitions: [{ topic: from, partition: 0 }] }]);
  expect(service.failures).toEqual([]);
});

test('an outage of the database, which its handlers do not need, parks no record of an exactly-once topic', async () => {
  const world = await testWorld();
  const proxy = await testProxy(world);
  const [from, to] = [await world.topic(), await world.topic(1, 'out')];
  const service = await testService(world, {
    databaseUrl: proxy.url,
    controllers: [exactlyOnceHandler(from, ({ id }, publisher) => publisher.publish(to, { id }))],
    options: { retry: { attempts: 2, delay: 10, factor: 1, jitter: 'none' } },
  });
  await until(() => service.named('committed').length > 0, { what: 'the first position' });
  proxy.refuse();
  proxy.reset();
  await world.send(from, { id: 'a' });
  await until(() => service.named('received').length > 4, { what: 'more tries than it has attempts' });
  await proxy.accept();
  await world.untilCommitted(from, 1);
  expect(await idsIn(world, to)).toEqual(['a']);
  expect(await parkedRows(world)).toEqual([]);
});

test('what Kafka will never take fails its record, which is parked, and no other: a topic that does not exist, a partition that a topic does not have, a message too large for it', async () => {
  const world = await testWorld();
  const from = await world.topic();
  const to = await world.topic(1, 'out', { config: { 'max.message.bytes': '2000' } });
  const service = await testService(world, {
    controllers: [
      exactlyOnceHandler(from, async ({ id }, publisher) => {
        await publisher.publish(to, { id });
        if (id === 'e3') await publisher.publish(world.topicName('missing'), { id });
        if (id === 'e5') await publisher.publish(to, { id }, { partition: 7 });
        if (id === 'e7') await publisher.publish(to, { id, much: 'm'.repeat(3_000) });
      }),
    ],
    options: { retry: { attempts: 2, delay: 10, factor: 1, jitter: 'none' } },
  });
  const ids = await sendNumbered(world, from, 10);
  await world.untilCommitted(from, 10);
  expect((await parkedRows(world)).map(({ offset }) => offset)).toEqual(['3', '5', '7']);
  expect(await idsIn(world, to)).toEqual(ids.filter((_, at) => ![3, 5, 7].includes(at)));
  expect(service.server.health().reasons).toEqual([]);
}, 120_000);
