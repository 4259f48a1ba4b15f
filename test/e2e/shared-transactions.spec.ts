import { setTimeout as sleep } from 'node:timers/promises';
import { Controller, Inject } from '@nestjs/common';
import { Payload } from '@nestjs/microservices';
import { DataSource } from 'typeorm';
import { expect, onTestFinished, test } from 'vitest';
import { currentDelivery, Idempotent, IdempotencyError } from 'nestjs-kafka-idempotency';
import { until } from 'nestjs-kafka-idempotency/testing';
import { ConsumedRecord } from '#src/consumer/consumed-record.js';
import { GroupTransactions } from '#src/handler/group-transactions.js';
import { DeliveryInProgress } from '#src/shared/delivery.js';
import { eventHandler, Gate, Meeting, writeEffect, type TestEvent } from './kit/handlers.js';
import { testProxy, testService, testSession, testWorker, testWorld } from './kit/in-test.js';
import { KeptLog } from './kit/log.js';
import { parkedRows } from './kit/parked.js';
import { OnTopic, startService } from './kit/service.js';
import { claimOf, everything, ids, transactions, TWICE, withDeferredKey, wrongs } from './kit/groups.js';
import { startsOnLostPartitions } from './kit/numbered.js';
import { seeded } from './kit/seeded.js';

const events = (count: number, from = 0) => ids(count, from).map((id) => ({ id }));

test('records that wait share a transaction, and each handler call is of its own: event, delivery, attempt', async () => {
  const world = await testWorld();
  const topic = await world.topic();
  const deliveries: unknown[] = [];
  await world.send(topic, ...events(100));
  const service = await testService(world, {
    options: { messagesPerTransaction: 20 },
    controllers: [
      eventHandler(topic, async ({ id }, tools) => {
        const { offset, eventId, attempt, signal } = currentDelivery()!;
        deliveries.push([id, offset, eventId, attempt, signal.aborted]);
        await writeEffect(tools, id);
      }),
    ],
  });
  await world.untilCommitted(topic, 100);
  expect(await world.effects()).toEqual(ids(100));
  expect(await world.processed()).toHaveLength(100);
  expect(deliveries).toEqual(ids(100).map((id, at) => [id, String(at), id, 1, false]));
  expect(await transactions(world)).toBe(5);
  expect(service.named('processed').map(({ offset }) => offset)).toEqual(
    Array.from({ length: 100 }, (_, at) => String(at)),
  );
});

test('a lone record does not wait for others', async () => {
  const world = await testWorld();
  const topic = await world.topic();
  await testService(world, {
    options: { messagesPerTransaction: 500 },
    controllers: [eventHandler(topic, ({ id }, tools) => writeEffect(tools, id))],
  });
  await world.send(topic, { id: 'a' });
  await world.untilCommitted(topic, 1);
  expect(await world.effects()).toEqual(['a']);
});

test('F41 one poison among 500: 499 have their effect once and in order, one is parked, and no handler is called much more often than it must', async () => {
  const world = await testWorld();
  const topic = await world.topic();
  let calls = 0;
  await world.send(topic, ...events(500));
  await testService(world, {
    options: { messagesPerTransaction: 200, retry: TWICE },
    controllers: [
      eventHandler(topic, async ({ id }, tools) => {
        calls += 1;
        await writeEffect(tools, id);
        if (id === 'e317') throw new Error('poison');
      }),
    ],
  });
  await world.untilCommitted(topic, 500);
  expect(await world.effects()).toEqual(ids(500).filter((id) => id !== 'e317'));
  expect(await parkedRows(world)).toMatchObject([{ event_id: 'e317', reason: 'exhausted', attempts: 2 }]);
  expect(calls).toBeLessThanOrEqual(500 + 200 + 3);
});

test.each([
  ['there at the start, it is blamed on its record', true, 100 + 50 + 3],
  ['made later, it is found by halves', false, 100 * 4],
])('F41 a poison that a deferred constraint refuses: %s', async (_, before, mostCalls) => {
  const world = await testWorld();
  const topic = await world.topic();
  let calls = 0;
  if (before) await withDeferredKey(world);
  const service = await startService(world, {
    options: { messagesPerTransaction: 50, retry: TWICE },
    controllers: [
      eventHandler(topic, async ({ id }, { dataSource }) => {
        calls += 1;
        // The parent comes behind the child: only a deferred check lets that pass.
        await dataSource.query('INSERT INTO references_one (id, event_id) VALUES ($1, $1)', [id]);
        if (id !== 'e17') await dataSource.query('INSERT INTO one (id) VALUES ($1)', [id]);
      }),
    ],
  });
  onTestFinished(() => service.close());
  if (!before) await withDeferredKey(world);
  await world.send(topic, ...events(100));
  await world.untilCommitted(topic, 100);
  const rows = await world.db.query<{ event_id: string }[]>('SELECT event_id FROM references_one');
  expect(rows.map(({ event_id }) => event_id).sort()).toEqual(
    ids(100)
      .filter((id) => id !== 'e17')
      .sort(),
  );
  expect(await parkedRows(world)).toMatchObject([{ event_id: 'e17' }]);
  expect(calls).toBeLessThanOrEqual(mostCalls);
});

test('a deferrable constraint that is dropped under a running service costs one group its being together, no more', async () => {
  const world = await testWorld();
  const topic = await world.topic();
  await withDeferredKey(world);
  const log = new KeptLog();
  const service = await testService(world, {
    logger: log,
    options: { messagesPerTransaction: 10 },
    controllers: [eventHandler(topic, ({ id }, tools) => writeEffect(tools, id))],
  });
  await world.db.query('DROP TABLE references_one');
  await world.send(topic, ...events(10));
  await world.untilCommitted(topic, 10);
  const stopped = log.with('they run again in smaller ones').length;
  expect(stopped).toBeGreaterThan(0);
  await world.db.query('TRUNCATE effects');
  await world.send(topic, ...events(30, 10));
  await world.untilCommitted(topic, 40);
  expect(await world.effects()).toEqual(ids(30, 10));
  expect(log.with('they run again in smaller ones')).toHaveLength(stopped);
  expect(service.failures).toEqual([]);
});

test('deferrable constraints of schemas that neither the search_path nor an entity leads to are none of a group’s', async () => {
  const [world, other] = [await testWorld(), await testWorld()];
  const topic = await world.topic();
  await withDeferredKey(other);
  await testService(world, {
    options: { messagesPerTransaction: 10 },
    controllers: [eventHandler(topic, ({ id }, tools) => writeEffect(tools, id))],
  });
  await other.db.query('DROP TABLE references_one');
  await world.send(topic, ...events(10));
  await world.untilCommitted(topic, 10);
  expect(await transactions(world)).toBe(1);
});

test.each([
  ['one after another', { messagesPerTransaction: 10 }],
  ['interleaved', { messagesPerTransaction: 10, concurrency: { keys: 4, interleave: true } }],
])('F42 an id that comes twice in a group runs once, for each of two consumers: %s', async (_name, options) => {
  const world = await testWorld();
  const topic = await world.topic();

  @Controller()
  class Handlers {
    constructor(@Inject(DataSource) readonly dataSource: DataSource) {}
    @OnTopic(topic)
    @Idempotent({ consumer: 'one' })
    async one(@Payload() { id }: TestEvent) {
      await writeEffect(this, id, 'one');
    }
    @OnTopic(topic)
    @Idempotent({ consumer: 'two' })
    async two(@Payload() { id }: TestEvent) {
      await writeEffect(this, id, 'two');
    }
  }
  await world.send(topic, ...['a', 'b', 'a', 'c', 'b', 'a'].map((id, at) => ({ id, key: `k${at}` })));
  const service = await testService(world, { options, controllers: [Handlers] });
  await world.untilCommitted(topic, 6);
  for (const consumer of ['one', 'two']) expect((await world.effects(consumer)).sort()).toEqual(['a', 'b', 'c']);
  expect(await transactions(world)).toBe(1);
  expect(service.named('duplicate').map(({ offset, consumer }) => `${offset} ${consumer}`)).toEqual([
    '2 one',
    '2 two',
    '4 one',
    '4 two',
    '5 one',
    '5 two',
  ]);
});

test('F42 groups of two services that hold the same ids in opposite order wait for each other instead of deadlocking, and each id runs once', async () => {
  const world = await testWorld();
  const topics = [await world.topic(), await world.topic()];
  const all = Array.from({ length: 20 }, (_, at) => `e${String(at).padStart(2, '0')}`);
  await world.send(topics[0]!, ...all.map((id) => ({ id })));
  await world.send(topics[1]!, ...all.map((id) => ({ id })).reverse());
  // In the order they were sent, one would hold the first half and the other the second when they meet here.
  const between = await testSession(world);
  await between.startTransaction();
  await between.query(claimOf('e10'));
  const logger = new KeptLog();
  for (const [at, topic] of topics.entries())
    await testService(world, {
      logger,
      typeOrm: { applicationName: topic },
      options: {
        messagesPerTransaction: 20,
        claimTimeout: '10s',
        kafka: { consumer: { groupId: `${world.group}-${at}` } },
      },
      controllers: [eventHandler(topic, ({ id }, tools) => writeEffect(tools, id))],
    });
  const waiting = async () =>
    world.db.query<unknown[]>(
      `SELECT pid FROM pg_stat_activity WHERE application_name = ANY ($1) AND wait_event_type = 'Lock'`,
      [topics],
    );
  await until(async () => (await waiting()).length === 2, { what: 'both to wait', timeoutMs: 30_000 });
  await between.rollbackTransaction();
  for (const [at, topic] of topics.entries()) await world.untilCommitted(topic, 20, 0, `${world.group}-${at}`);
  expect((await world.effects()).sort()).toEqual(all);
  expect(logger.with('run again in smaller ones')).toEqual([]);
});

test('F43 a process killed in the middle of a group leaves nothing of it, and the next one does all of it', async () => {
  const world = await testWorld();
  const topic = await world.topic();
  await world.send(topic, ...events(30));
  const plan = { topic, messagesPerTransaction: 10 };
  const first = testWorker(world, { ...plan, failpoint: { at: 'handled', offset: '15' } });
  expect(await first.untilEnded()).toMatchObject({ signal: 'SIGKILL' });
  expect(await everything(world)).toEqual([ids(10), ids(10).map((id) => `test/${id}`)]);
  testWorker(world, plan);
  await world.untilCommitted(topic, 30);
  expect(await world.effects()).toEqual(ids(30));
});

test('F43 COMMIT of a group without an answer: it runs again, and the claims find that it is done', async () => {
  const world = await testWorld();
  const topic = await world.topic();
  const proxy = await testProxy(world);
  const swallowed = proxy.swallowCommitReply();
  await world.send(topic, ...events(20));
  const service = await testService(world, {
    databaseUrl: proxy.url,
    options: { messagesPerTransaction: 20 },
    controllers: [eventHandler(topic, ({ id }, tools) => writeEffect(tools, id))],
  });
  await swallowed.hit;
  await world.untilCommitted(topic, 20);
  expect(await world.effects()).toEqual(ids(20));
  expect(service.named('unknown').length).toBeGreaterThan(0);
  expect(await parkedRows(world)).toEqual([]);
});

test('F43 a connection lost before COMMIT of a group: nothing of it is there, and all of it runs again', async () => {
  const world = await testWorld();
  const topic = await world.topic();
  const proxy = await testProxy(world);
  const cut = proxy.cutBeforeCommit();
  await world.send(topic, ...events(20));
  await testService(world, {
    databaseUrl: proxy.url,
    options: { messagesPerTransaction: 20, retry: TWICE },
    controllers: [eventHandler(topic, ({ id }, tools) => writeEffect(tools, id))],
  });
  await cut.hit;
  await world.untilCommitted(topic, 20);
  expect(await world.effects()).toEqual(ids(20));
  expect(await parkedRows(world)).toEqual([]);
});

test('B51 ten records, one poison, one copy: eight effects, one parked, one skipped, and the offset passes the poison only once it is parked', async () => {
  const world = await testWorld();
  const topic = await world.topic();
  const early: string[] = [];
  await world.send(topic, ...events(10).map((event, at) => (at === 7 ? { id: 'e2' } : event)));
  const service = await testService(world, {
    options: { messagesPerTransaction: 10, retry: { ...TWICE, delay: 300 } },
    controllers: [
      eventHandler(topic, async ({ id }, tools) => {
        if ((await parkedRows(world)).length === 0 && ((await world.committed(topic)) ?? 0n) > 4n) early.push(id);
        await writeEffect(tools, id);
        if (id === 'e4') throw new Error('poison');
      }),
    ],
  });
  await world.untilCommitted(topic, 10);
  expect(early).toEqual([]);
  expect(await world.effects()).toEqual(['e0', 'e1', 'e2', 'e3', 'e5', 'e6', 'e8', 'e9']);
  expect(await parkedRows(world)).toMatchObject([{ event_id: 'e4', offset: '4' }]);
  expect(service.named('duplicate').map(({ offset }) => offset)).toEqual(['7']);
});

test('several handlers of a topic take its smallest number, which is logged, and one that is not idempotent shares nothing', async () => {
  const world = await testWorld();
  const [topic, mixed] = [await world.topic(), await world.topic()];
  const logger = new KeptLog();

  @Controller()
  class Handlers {
    constructor(@Inject(DataSource) readonly dataSource: DataSource) {}
    @OnTopic(topic)
    @Idempotent({ consumer: 'few', messagesPerTransaction: 5 })
    async few(@Payload() { id }: TestEvent) {
      await writeEffect(this, id, 'few');
    }
    @OnTopic(topic)
    @Idempotent({ consumer: 'many', messagesPerTransaction: 50 })
    async many(@Payload() { id }: TestEvent) {
      await writeEffect(this, id, 'many');
      if (id === 'e3') throw new Error('only here');
    }
    @OnTopic(mixed)
    @Idempotent({ consumer: 'mixed', messagesPerTransaction: 50 })
    async mixed(@Payload() { id }: TestEvent) {
      await writeEffect(this, id, 'mixed');
    }
    @OnTopic(mixed)
    plain() {}
  }
  await world.send(topic, ...events(10));
  await world.send(mixed, ...events(3));
  await testService(world, { logger, options: { retry: TWICE }, controllers: [Handlers] });
  await world.untilCommitted(topic, 10);
  await world.untilCommitted(mixed, 3);
  expect(await world.effects('few')).toEqual(ids(10));
  expect(await world.effects('many')).toEqual(ids(10).filter((id) => id !== 'e3'));
  expect(await world.effects('mixed')).toEqual(ids(3));
  expect(await parkedRows(world)).toMatchObject([{ consumer: 'many', event_id: 'e3' }]);
  expect(logger.with('messagesPerTransaction is 5, of few (5), many (50)')).toHaveLength(1);
  expect(logger.with('only @Idempotent() event handlers')).toHaveLength(1);
  const [single] = await world.db.query<{ count: number }[]>(
    `SELECT count(DISTINCT xmin::text)::integer AS count FROM effects WHERE handler = 'mixed'`,
  );
  expect(single).toEqual({ count: 3 });
});

test('a key that is parked holds its later events of the same group', async () => {
  const world = await testWorld();
  const topic = await world.topic();
  await world.send(topic, ...Array.from({ length: 12 }, (_, at) => ({ id: `e${at}`, key: `k${at % 3}` })));
  await testService(world, {
    options: { messagesPerTransaction: 12, holdKey: true, retry: TWICE, redelivery: { rounds: 0 } },
    controllers: [
      eventHandler(topic, async ({ id }, tools) => {
        await writeEffect(tools, id);
        if (id === 'e4') throw new Error('poison');
      }),
    ],
  });
  await world.untilCommitted(topic, 12);
  expect(await world.effects()).toEqual(ids(12).filter((id) => !['e4', 'e7', 'e10'].includes(id)));
  expect((await parkedRows(world)).map(({ offset, state }) => `${offset} ${state}`)).toEqual([
    '4 dead',
    '7 held',
    '10 held',
  ]);
});

test('a record without an id and one that cannot be decoded are parked, and the others of the group are not touched', async () => {
  const world = await testWorld();
  const topic = await world.topic();
  const service = await startService(world, {
    options: { messagesPerTransaction: 20, retry: TWICE },
    controllers: [eventHandler(topic, ({ id }, tools) => writeEffect(tools, id))],
  });
  onTestFinished(() => service.close());
  service.server.pause(topic);
  await world.send(topic, ...events(5));
  await world.sendRaw(topic, { value: JSON.stringify({ id: 'nobody' }) });
  await world.send(topic, ...events(5, 5));
  await world.sendRaw(topic, { value: '{', headers: { 'event-id': 'broken' } });
  await world.send(topic, ...events(5, 10));
  service.server.resume(topic);
  await world.untilCommitted(topic, 17);
  expect(await world.effects()).toEqual(ids(15));
  expect((await parkedRows(world)).map(({ offset, reason }) => `${offset} ${reason}`)).toEqual([
    '5 missing-id',
    '11 decoding',
  ]);
});

test('while another session holds one of the claims the records go one by one, and none fails', async () => {
  const world = await testWorld();
  const topic = await world.topic();
  const other = await testSession(world);
  await other.startTransaction();
  await other.query(claimOf('e3'));
  await world.send(topic, ...events(6));
  const service = await testService(world, {
    options: { messagesPerTransaction: 10, claimTimeout: 200 },
    controllers: [eventHandler(topic, ({ id }, tools) => writeEffect(tools, id))],
  });
  expect(await world.untilEffects(3)).toEqual(ids(3));
  await until(() => service.named('busy').length > 0, { what: 'busy' });
  await other.rollbackTransaction();
  await world.untilCommitted(topic, 6);
  expect(await world.effects()).toEqual(ids(6));
  expect(service.failures).toEqual([]);
});

test.each(Object.keys(wrongs))(
  'a handler that %s is blamed alone; the others of its group have their effects once',
  async (wrong) => {
    const world = await testWorld();
    const topic = await world.topic();
    let calls = 0;
    await world.send(topic, ...events(6));
    await testService(world, {
      options: { messagesPerTransaction: 10, retry: TWICE, timeout: 700 },
      controllers: [
        eventHandler(topic, async ({ id }, tools) => {
          calls += 1;
          await writeEffect(tools, id);
          if (id === 'e2') await wrongs[wrong]!.does(tools.dataSource);
        }),
      ],
    });
    await world.untilCommitted(topic, 6);
    expect(await world.effects()).toEqual(ids(6).filter((id) => id !== 'e2'));
    expect(await parkedRows(world)).toMatchObject([{ event_id: 'e2', error_code: wrongs[wrong]!.code }]);
    expect(calls).toBe(3 + 2 + 2 + 3); // up to it, those before it, its two attempts, those behind it
  },
);

test('a statement that comes after its handler has ended is refused, though the transaction goes on with the next record', async () => {
  const world = await testWorld();
  const topic = await world.topic();
  const [late, told] = [new Gate(), new Gate()];
  let refusal: unknown;
  await world.send(topic, ...events(3));
  await testService(world, {
    options: { messagesPerTransaction: 10 },
    controllers: [
      eventHandler(topic, async ({ id }, tools) => {
        await writeEffect(tools, id);
        if (id === 'e0')
          void late.passed
            .then(() => writeEffect(tools, 'late'))
            .catch((error: unknown) => (refusal = error))
            .finally(() => told.open());
        if (id !== 'e1') return;
        late.open();
        await told.passed;
      }),
    ],
  });
  await world.untilCommitted(topic, 3);
  expect(IdempotencyError.is(refusal, 'TRANSACTION_ENDED')).toBe(true);
  expect(await world.effects()).toEqual(ids(3));
  expect(await transactions(world)).toBe(1);
});

test('a record that kills its process in a group is found and parked, and none of its group is blamed', async () => {
  const world = await testWorld();
  const topic = await world.topic();
  await world.send(topic, ...events(8));
  const plan = { topic, messagesPerTransaction: 8, deadly: ['e5'] };
  for (let deaths = 0; deaths < 4; deaths += 1) {
    const worker = testWorker(world, plan);
    expect(await worker.untilEnded()).toMatchObject({ signal: 'SIGKILL' });
  }
  testWorker(world, plan);
  await world.untilCommitted(topic, 8);
  expect(await world.effects()).toEqual(ids(8).filter((id) => id !== 'e5'));
  expect(await parkedRows(world)).toMatchObject([{ event_id: 'e5', reason: 'process-death' }]);
});

test.each([1, 2, 3])(
  'whatever fails how often (seed %i), each event has its effect once and in order, or is parked',
  async (seed) => {
    const world = await testWorld();
    const topic = await world.topic(2);
    const random = seeded(seed);
    const failures = new Map(ids(300).map((id) => [id, random() < 0.03 ? (random() < 0.5 ? 1 : Infinity) : 0]));
    const attempts = new Map<string, number>();
    const sent = ids(300).map((id) => ({ id, partition: Number(id.slice(1)) % 2 }));
    const copies = sent.filter(() => random() < 0.1);
    await world.send(topic, ...sent.flatMap((event) => (copies.includes(event) ? [event, event] : [event])));
    await testService(world, {
      options: { messagesPerTransaction: 1 + Math.floor(random() * 60), retry: TWICE },
      controllers: [
        eventHandler(topic, async ({ id }, tools) => {
          await writeEffect(tools, id);
          attempts.set(id, (attempts.get(id) ?? 0) + 1);
          if (random() < 0.2) await sleep(1);
          if (attempts.get(id)! <= failures.get(id)!) throw new Error('by plan');
        }),
      ],
    });
    for (const partition of [0, 1]) {
      const count = [...sent, ...copies].filter((event) => event.partition === partition).length;
      await world.untilCommitted(topic, count, partition);
    }
    const good = ids(300).filter((id) => failures.get(id) !== Infinity);
    const effects = await world.effects();
    for (const parity of [0, 1])
      expect(effects.filter((id) => Number(id.slice(1)) % 2 === parity)).toEqual(
        good.filter((id) => Number(id.slice(1)) % 2 === parity),
      );
    const dead = new Set((await parkedRows(world)).map(({ event_id }) => event_id));
    expect(dead).toEqual(new Set(ids(300).filter((id) => failures.get(id) === Infinity)));
  },
);

test('B29 a partition that is lost in the middle of a group: no further record of it begins, and each event has its effect once and in order', async () => {
  const world = await testWorld();
  const topic = await world.topic(2);
  await world.send(
    topic,
    ...Array.from({ length: 80 }, (_, at) => ({ id: `${at % 2}-${Math.floor(at / 2)}`, partition: at % 2 })),
  );
  const goOn = new Gate();
  const reached = new Meeting(2);
  const serviceOf = (waitsAt: readonly string[]) =>
    testService(world, {
      options: { messagesPerTransaction: 20 },
      controllers: [
        eventHandler(topic, async ({ id }, tools) => {
          await writeEffect(tools, id);
          if (!waitsAt.includes(id)) return;
          void reached.arrive();
          await goOn.passed;
        }),
      ],
    });
  const first = await serviceOf(['0-5', '1-5']);
  await until(() => reached.came === 2, { what: 'the middle of both groups', timeoutMs: 30_000 });
  const second = await serviceOf([]);
  await until(() => first.named('revoked').length > 0, { what: 'the loss', timeoutMs: 30_000 });
  goOn.open();
  for (const partition of [0, 1]) await world.untilCommitted(topic, 40, partition);
  expect(startsOnLostPartitions(first)).toEqual([]);
  expect(second.named('processed').length).toBeGreaterThan(0);
  const effects = await world.effects();
  for (const partition of [0, 1])
    expect(effects.filter((id) => id.startsWith(`${partition}-`))).toEqual(
      Array.from({ length: 40 }, (_, seq) => `${partition}-${seq}`),
    );
});

test('a handler that commits by hand behind another statement loses no event of its group', async () => {
  const world = await testWorld();
  const topic = await world.topic();
  await world.send(topic, ...events(6));
  const service = await testService(world, {
    options: { messagesPerTransaction: 10, retry: TWICE },
    controllers: [
      eventHandler(topic, async ({ id }, tools) => {
        await writeEffect(tools, id);
        if (id === 'e2' && currentDelivery()?.attempt === 1) await tools.dataSource.query('SELECT 1; COMMIT; BEGIN');
      }),
    ],
  });
  await world.untilCommitted(topic, 6);
  expect(await world.effects()).toEqual(ids(6));
  expect(await world.processed()).toHaveLength(6);
  expect(service.named('processed').map(({ offset }) => offset)).toEqual(expect.arrayContaining(['3', '4', '5']));
});

test('a group of which something claimed did not run is never committed', async () => {
  const world = await testWorld();
  const topic = await world.topic();
  const service = await testService(world, {
    controllers: [eventHandler(topic, ({ id }, tools) => writeEffect(tools, id))],
  });
  const deliveries = ids(2).map((id, at) => {
    const record = ConsumedRecord.from({
      topic,
      partition: 0,
      offset: BigInt(at),
      timestamp: new Date(),
      key: null,
      value: null,
      headers: [['event-id', Buffer.from(id)]],
    });
    return [new DeliveryInProgress(record.view('json', 10), 'test', 1)];
  });
  const group = service.app.get(GroupTransactions).over(deliveries, { interleaved: false });
  const [first, second] = deliveries.map(([delivery]) => delivery!);
  const entry = await group.enter(first!);
  expect(await group.enter(second!)).toBeDefined();
  await new Promise((resolve) => group.ran(first!, entry!, resolve));
  expect(await group.commit()).toMatchObject({ kind: 'refused' });
  expect(await world.processed()).toEqual([]);
});

test('with concurrency.keys above 1 it is refused at start-up', async () => {
  const world = await testWorld();
  const topic = await world.topic();
  const starting = startService(world, {
    options: { messagesPerTransaction: 10, concurrency: { keys: 2 } },
    controllers: [eventHandler(topic, () => undefined)],
  });
  await expect(starting).rejects.toMatchObject({ code: 'OPTIONS_INVALID' });
});
