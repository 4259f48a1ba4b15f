import { setTimeout as sleep } from 'node:timers/promises';
import { expect, test } from 'vitest';
import { until } from 'nestjs-kafka-idempotency/testing';
import { eventHandler, Gate, Meeting, writeEffect } from './kit/handlers.js';
import { testProxy, testService, testWorker, testWorld } from './kit/in-test.js';
import { KeptLog } from './kit/log.js';
import { parkedRows } from './kit/parked.js';
import type { World } from './kit/world.js';
import { keyed, type Keyed, writeKeyed } from './kit/keyed.js';
import { seeded } from './kit/seeded.js';

/** Event `key-seq` of that key; null: without a key. */

/** A batch of its own for each, so that fetches can be small. */
async function sendEach(world: World, topic: string, events: readonly ReturnType<typeof keyed>[]): Promise<void> {
  for (const one of events) await world.send(topic, one);
}

const seqsOf = async (world: World, k: string | null): Promise<number[]> => {
  const rows = await world.db.query<{ seq: number }[]>(
    'SELECT seq FROM effects WHERE key IS NOT DISTINCT FROM $1 ORDER BY id',
    [k],
  );
  return rows.map(({ seq }) => seq);
};

test('keys of one partition are at work at once, as many as concurrency.keys says', async () => {
  const world = await testWorld();
  const topic = await world.topic();
  const meeting = new Meeting(3);
  await testService(world, {
    options: { concurrency: { keys: 3 } },
    controllers: [
      eventHandler<Keyed>(topic, async (event, tools) => {
        await writeKeyed(tools, event);
        await meeting.arrive();
      }),
    ],
  });
  await world.send(topic, keyed('a', 0), keyed('a', 1), keyed('b', 0), keyed('c', 0), keyed('d', 0));
  await world.untilCommitted(topic, 5);
  expect((await world.effects()).sort()).toEqual(['a-0', 'a-1', 'b-0', 'c-0', 'd-0']);
});

test('B51 one key keeps its order through failures and waits, so do records without a key, and each has one effect', async () => {
  const world = await testWorld();
  const topic = await world.topic();
  const random = seeded(7);
  const keys = ['a', 'b', 'c', 'd', null];
  const atWork = new Map<string | null, number>();
  const overlaps: string[] = [];
  await testService(world, {
    options: { concurrency: { keys: 4, transactions: 4 } },
    controllers: [
      eventHandler<Keyed>(topic, async (event, tools) => {
        if (atWork.has(event.k)) overlaps.push(event.id);
        atWork.set(event.k, event.seq);
        try {
          await writeKeyed(tools, event);
          await sleep(random() * 5); // handlers of different length, so that keys overtake each other
          if (random() < 0.2) throw new Error('by chance');
        } finally {
          atWork.delete(event.k);
        }
      }),
    ],
  });
  const next = new Map<string | null, number>();
  const events = Array.from({ length: 200 }, () => {
    const k = keys[Math.floor(random() * keys.length)] ?? null;
    const seq = next.get(k) ?? 0;
    next.set(k, seq + 1);
    return keyed(k, seq);
  });
  await world.send(topic, ...events);
  await world.untilCommitted(topic, 200);
  expect(overlaps).toEqual([]);
  for (const k of keys)
    expect(await seqsOf(world, k), String(k)).toEqual(Array.from({ length: next.get(k)! }, (_, at) => at));
});

test('while one key fails the others go on, as far as the buffer reaches, and the offset stays in front of it', async () => {
  const world = await testWorld();
  const topic = await world.topic();
  const fault = { broken: true };
  const service = await testService(world, {
    options: {
      concurrency: { keys: 3 },
      buffer: { records: 10 },
      kafka: { consumer: { groupId: world.group, maxBytesPerPartition: 200 } },
    },
    controllers: [
      eventHandler<Keyed>(topic, async (event, tools) => {
        if (event.k === 'poison' && fault.broken) throw new Error('not yet');
        await writeKeyed(tools, event);
      }),
    ],
  });
  await sendEach(world, topic, [
    keyed('poison', 0),
    keyed('poison', 1),
    ...Array.from({ length: 40 }, (_, at) => keyed(`k${at % 7}`, at)),
  ]);
  await until(async () => (await world.effects()).length >= 8, { what: 'the others', timeoutMs: 20_000 });
  const attempts = service.named('failed').length;
  await until(() => service.named('failed').length > attempts + 10, { what: 'more attempts' });
  const began = new Set(service.named('received').map(({ offset }) => Number(offset)));
  expect(Math.max(...began)).toBeLessThan(14); // ten, and what one more fetch brought
  expect(began).not.toContain(1);
  expect(await world.committed(topic)).toBe(0n);
  expect(service.server.health()).toMatchObject({ live: true, ready: true, reasons: [{ code: 'HANDLER_RETRYING' }] });
  fault.broken = false;
  await world.untilCommitted(topic, 42);
  expect(new Set(await world.effects()).size).toBe(42);
  expect(await world.effects()).toHaveLength(42);
  expect(await seqsOf(world, 'poison')).toEqual([0, 1]);
  expect(service.named('assigned')).toHaveLength(1);
  expect(service.server.health().reasons).toEqual([]);
});

test('more keys than transactions run no more than those at once, and a start-up line says so', async () => {
  const world = await testWorld();
  const topic = await world.topic();
  const logger = new KeptLog();
  let atWork = 0;
  let most = 0;
  await testService(world, {
    logger,
    options: { concurrency: { keys: 8, transactions: 2 } },
    controllers: [
      eventHandler<Keyed>(topic, async (event, tools) => {
        most = Math.max(most, (atWork += 1));
        await writeKeyed(tools, event);
        await sleep(5); // long enough that others could begin beside it
        atWork -= 1;
      }),
    ],
  });
  await world.send(topic, ...Array.from({ length: 30 }, (_, at) => keyed(`k${at}`, 0)));
  await world.untilCommitted(topic, 30);
  expect(most).toBe(2);
  expect(logger.with('concurrency.keys is 8, but no more than 2 transactions')).toHaveLength(1);
});

test('closing lets the keys at work end and begins no other; a pause does the same', async () => {
  const world = await testWorld();
  const topic = await world.topic();
  const began = new Meeting(3);
  const goOn = new Gate();
  const handler = eventHandler<Keyed>(topic, async (event, tools) => {
    void began.arrive();
    await goOn.passed;
    await writeKeyed(tools, event);
  });
  const service = await testService(world, { options: { concurrency: { keys: 2 } }, controllers: [handler] });
  service.server.pause(topic);
  await world.send(topic, ...['a', 'b', 'c', 'd'].map((k) => keyed(k, 0)));
  await until(() => service.named('assigned').length > 0, { what: 'the join' });
  expect(began.came).toBe(0);
  service.server.resume(topic);
  await until(() => began.came === 2, { what: 'two at work' });
  const closing = service.close();
  await until(() => !service.server.health().ready, { what: 'readiness to go down' });
  goOn.open();
  await closing;
  expect((await world.effects()).sort()).toEqual(['a-0', 'b-0']);
  expect(await world.committed(topic)).toBe(2n);
  expect(began.came).toBe(2);
});

test('B29 partitions that move while several of their keys are at work: each event once, each key in order', async () => {
  const world = await testWorld();
  const topic = await world.topic(4);
  const events = Array.from({ length: 400 }, (_, at) => ({
    ...keyed(`k${at % 20}`, Math.floor(at / 20)),
    partition: at % 4,
  }));
  const handler = eventHandler<Keyed>(topic, async (event, tools) => {
    await writeKeyed(tools, event);
    await sleep(10); // slow, so that the move finds work under way
  });
  const service = { options: { concurrency: { keys: 3 } }, controllers: [handler] };
  await testService(world, service);
  await world.send(topic, ...events);
  await world.untilEffects(40);
  const second = await testService(world, service);
  await until(() => second.named('processed').length > 20, { what: 'work of the second', timeoutMs: 30_000 });
  await second.close();
  for (let partition = 0; partition < 4; partition += 1) await world.untilCommitted(topic, 100, partition);
  expect(await world.effects()).toHaveLength(400);
  for (let key = 0; key < 20; key += 1)
    expect(await seqsOf(world, `k${key}`)).toEqual(Array.from({ length: 20 }, (_, seq) => seq));
});

test('F01 a process killed with several keys at work: the next one brings each event to one effect, each key in order', async () => {
  const world = await testWorld();
  const topic = await world.topic();
  const events = Array.from({ length: 60 }, (_, at) => ({
    ...keyed(`k${at % 6}`, at),
    payload: { partition: at % 6, seq: at },
  }));
  await world.send(topic, ...events);
  const plan = { topic, keys: 6, numbered: true, handlerMs: 20 } as const;
  const first = testWorker(world, { ...plan, failpoint: { at: 'handled', offset: '31' } });
  expect(await first.untilEnded()).toMatchObject({ signal: 'SIGKILL' });
  testWorker(world, plan);
  await world.untilCommitted(topic, 60);
  for (let key = 0; key < 6; key += 1)
    expect(await seqsOf(world, String(key))).toEqual(Array.from({ length: 10 }, (_, at) => key + 6 * at));
});

test('a record that kills its process beside others of its partition is found, and none of them is blamed, not even one that fails meanwhile', async () => {
  const world = await testWorld();
  const topic = await world.topic();
  await world.send(topic, ...['i1', 'i2', 'i3', 'b', 'c'].map((id) => ({ id, key: id })));
  const plan = { topic, keys: 4, deadly: ['b'], failing: ['i1'], failures: 1, retryDelayMs: 500 };
  let deaths = 0;
  for (; deaths < 4; deaths += 1) {
    const worker = testWorker(world, plan);
    expect(await worker.untilEnded()).toMatchObject({ signal: 'SIGKILL' });
  }
  testWorker(world, plan);
  await world.untilCommitted(topic, 5);
  expect((await world.effects()).sort()).toEqual(['c', 'i1', 'i2', 'i3']);
  expect(await parkedRows(world)).toMatchObject([{ event_id: 'b', reason: 'process-death' }]);
});

test('a parked key holds its later events while the other keys of the partition pass', async () => {
  const world = await testWorld();
  const topic = await world.topic();
  await testService(world, {
    options: { concurrency: { keys: 3 }, holdKey: true, retry: { attempts: 1 }, redelivery: { rounds: 0 } },
    controllers: [
      eventHandler<Keyed>(topic, async (event, tools) => {
        if (event.id === 'a-0') throw new Error('never');
        await writeKeyed(tools, event);
      }),
    ],
  });
  await world.send(topic, ...[0, 1, 2].flatMap((seq) => [keyed('a', seq), keyed('b', seq), keyed('c', seq)]));
  await world.untilCommitted(topic, 9);
  expect(await world.effects()).toHaveLength(6);
  expect((await parkedRows(world)).map(({ event_id, offset, state }) => [event_id ?? offset, state])).toEqual([
    ['a-0', 'dead'],
    ['a-1', 'held'],
    ['a-2', 'held'],
  ]);
});

test('F19 with several keys at work an outage is still probed by one record a second, and parks nothing', async () => {
  const world = await testWorld();
  const topic = await world.topic();
  const proxy = await testProxy(world);
  const service = await testService(world, {
    databaseUrl: proxy.url,
    options: { concurrency: { keys: 4 }, retry: { attempts: 3, delay: 10, jitter: 'none' }, timeout: '2s' },
    typeOrm: { extra: { connectionTimeoutMillis: 500 } },
    controllers: [eventHandler(topic, ({ id }, tools) => writeEffect(tools, id))],
  });
  await world.send(topic, { id: 'first', key: 'first' });
  await world.untilCommitted(topic, 1);
  proxy.refuse();
  proxy.reset();
  await world.send(topic, ...Array.from({ length: 12 }, (_, at) => ({ id: `e${at}`, key: `k${at}` })));
  await until(() => service.named('outage').length > 0, { what: 'the outage', timeoutMs: 20_000 });
  const before = service.named('received').length;
  const since = performance.now();
  await until(() => service.named('received').length >= before + 4, { what: 'four probes', timeoutMs: 20_000 });
  expect(performance.now() - since).toBeGreaterThan(2500);
  await proxy.accept();
  await world.untilCommitted(topic, 13);
  expect(new Set(await world.effects()).size).toBe(13);
  expect(await world.effects()).toHaveLength(13);
  expect(await parkedRows(world)).toEqual([]);
});
