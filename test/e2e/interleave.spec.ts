import { setTimeout as sleep } from 'node:timers/promises';
import { Controller, Inject, type Type } from '@nestjs/common';
import { Payload } from '@nestjs/microservices';
import { InjectRepository } from '@nestjs/typeorm';
import { EntitySchema, type Repository } from 'typeorm';
import { expect, onTestFinished, test } from 'vitest';
import { currentDelivery, Idempotent, IdempotencyError, Signal, TransactionScope } from 'nestjs-kafka-idempotency';
import { until } from 'nestjs-kafka-idempotency/testing';
import { batchHandler, eventHandler, Gate, Meeting, writeEffect, type TestEvent } from './kit/handlers.js';
import { testProxy, testService, testSession, testWorker, testWorld } from './kit/in-test.js';
import { KeptLog } from './kit/log.js';
import { parkedRows } from './kit/parked.js';
import { OnTopic, startService } from './kit/service.js';
import type { World } from './kit/world.js';
import { ids, transactions, TWICE, wrongs } from './kit/groups.js';
import { type Keyed, keyed, writeKeyed } from './kit/keyed.js';
import { startsOnLostPartitions } from './kit/numbered.js';
import { seeded } from './kit/seeded.js';

/** Each of a key of its own. */
const events = (count: number, from = 0) => ids(count, from).map((id) => ({ id, key: id }));
const interleaved = (keys: number, messagesPerTransaction: number) => ({
  messagesPerTransaction,
  concurrency: { keys, interleave: true },
});

const sortedEffects = async (world: World) => (await world.effects()).sort();

test('keys of one transaction are at their handlers at once, as many as concurrency.keys says and no more', async () => {
  const world = await testWorld();
  const topic = await world.topic();
  const meeting = new Meeting(3);
  let [atWork, most] = [0, 0];
  await world.send(topic, ...events(9));
  await testService(world, {
    options: interleaved(3, 20),
    controllers: [
      eventHandler(topic, async ({ id }, tools) => {
        most = Math.max(most, (atWork += 1));
        await writeEffect(tools, id);
        await meeting.arrive();
        atWork -= 1;
      }),
    ],
  });
  await world.untilCommitted(topic, 9);
  expect(await sortedEffects(world)).toEqual(ids(9));
  expect(await world.processed()).toHaveLength(9);
  expect(await transactions(world)).toBe(1);
  expect(most).toBe(3);
});

test('each of the handlers at work at once has its own delivery, signal, transaction and repositories, over its awaits', async () => {
  const world = await testWorld();
  const topic = await world.topic();
  const meeting = new Meeting(4);
  const seen = new Map<string, unknown[]>();
  interface Effect {
    event_id: string;
    handler: string;
  }
  const Effects = new EntitySchema<Effect & { id: string }>({
    name: 'effects',
    columns: {
      id: { type: 'bigint', primary: true, generated: 'increment' },
      event_id: { type: 'text' },
      handler: { type: 'text' },
    },
  });

  @Controller()
  class Handlers {
    constructor(
      @InjectRepository(Effects) readonly effects: Repository<Effect>,
      @Inject(TransactionScope) readonly scope: TransactionScope,
    ) {}
    @OnTopic(topic)
    @Idempotent({ consumer: 'test' })
    async handle(@Payload() { id }: TestEvent, @Signal() signal: AbortSignal) {
      const manager = this.scope.active;
      await this.effects.insert({ event_id: id, handler: 'one' });
      await meeting.arrive();
      const delivery = currentDelivery()!;
      seen.set(id, [delivery.eventId, delivery.signal === signal, !!manager && this.scope.active === manager]);
      await this.effects.update({ event_id: id }, { handler: 'two' });
    }
  }
  await world.send(topic, ...events(4));
  await testService(world, { options: interleaved(4, 10), controllers: [Handlers], entities: [Effects] });
  await world.untilCommitted(topic, 4);
  expect(seen).toEqual(new Map(ids(4).map((id) => [id, [id, true, true]])));
  expect((await world.effects('two')).sort()).toEqual(ids(4));
  expect(await transactions(world)).toBe(1);
});

test.each([1, 2, 3])(
  'B51 whatever fails how often (seed %i), one key keeps its order, so do records without a key, and each event has one effect or is parked',
  async (seed) => {
    const world = await testWorld();
    const topic = await world.topic();
    const random = seeded(seed);
    const keys = ['a', 'b', 'c', 'd', 'e', null];
    const next = new Map<string | null, number>();
    const sent = Array.from({ length: 300 }, () => {
      const k = keys[Math.floor(random() * keys.length)] ?? null;
      const seq = next.get(k) ?? 0;
      next.set(k, seq + 1);
      return keyed(k, seq);
    });
    const failures = new Map(sent.map(({ id }) => [id, random() < 0.03 ? (random() < 0.5 ? 1 : Infinity) : 0]));
    const attempts = new Map<string, number>();
    const atWork = new Set<string | null>();
    const overlaps: string[] = [];
    await world.send(topic, ...sent.flatMap((one) => (random() < 0.1 ? [one, one] : [one])));
    await testService(world, {
      options: { ...interleaved(4, 1 + Math.floor(random() * 60)), retry: TWICE },
      controllers: [
        eventHandler<Keyed>(topic, async (one, tools) => {
          if (atWork.has(one.k)) overlaps.push(one.id);
          atWork.add(one.k);
          try {
            attempts.set(one.id, (attempts.get(one.id) ?? 0) + 1);
            await writeKeyed(tools, one);
            if (random() < 0.2) await sleep(random() * 5); // handlers of different length, so that keys overtake each other
            if (attempts.get(one.id)! > failures.get(one.id)!) return;
            if (random() < 0.5) await tools.dataSource.query('SELECT 1 / 0');
            else throw new Error('by plan');
          } finally {
            atWork.delete(one.k);
          }
        }),
      ],
    });
    await world.untilAtEnd(topic);
    expect(overlaps).toEqual([]);
    const rows = await world.db.query<{ key: string | null; seq: number }[]>(
      'SELECT key, seq FROM effects ORDER BY id',
    );
    for (const k of keys)
      expect(
        rows.filter(({ key }) => key === k).map(({ seq }) => seq),
        String(k),
      ).toEqual(sent.filter((one) => one.key === k && failures.get(one.id) !== Infinity).map((one) => one.payload.seq));
    const dead = new Set((await parkedRows(world)).map(({ event_id }) => event_id));
    expect(dead).toEqual(new Set(sent.filter(({ id }) => failures.get(id) === Infinity).map(({ id }) => id)));
  },
);

test('F41 a failing statement is blamed on its own record, though every handler at work gets an error by it', async () => {
  const world = await testWorld();
  const topic = await world.topic();
  const [meeting, failed] = [new Meeting(6), new Gate()];
  const logger = new KeptLog();
  const aborted: string[] = [];
  await world.send(topic, ...events(6));
  await testService(world, {
    logger,
    options: { ...interleaved(6, 10), retry: TWICE },
    controllers: [
      eventHandler(topic, async ({ id }, tools) => {
        await writeEffect(tools, id);
        if (meeting.came < 6) {
          await meeting.arrive();
          // The others come behind the one that fails: those before and behind it in the partition.
          if (id !== 'e3') await failed.passed;
        }
        if (id === 'e3') await tools.dataSource.query('SELECT 1 / 0').finally(() => failed.open());
        await writeEffect(tools, `${id}+`).catch((error: { code?: string }) => {
          aborted.push(`${id} ${error.code}`);
          throw error;
        });
      }),
    ],
  });
  await world.untilCommitted(topic, 6);
  const good = ids(6).filter((id) => id !== 'e3');
  expect(aborted.sort()).toEqual(good.map((id) => `${id} 25P02`));
  expect(await sortedEffects(world)).toEqual(good.flatMap((id) => [id, `${id}+`]).sort());
  expect(await parkedRows(world)).toMatchObject([{ event_id: 'e3', reason: 'exhausted', attempts: 2 }]);
  expect(logger.with('run again in smaller ones').map(({ text }) => /stopped at offset \d+/.exec(text)?.[0])).toEqual([
    'stopped at offset 3',
  ]);
});

test('F41 one poison among 500: 499 have their effect once, one is parked, and no handler is called much more often than it must', async () => {
  const world = await testWorld();
  const topic = await world.topic();
  let calls = 0;
  await world.send(topic, ...events(500));
  await testService(world, {
    options: { ...interleaved(20, 200), retry: TWICE },
    controllers: [
      eventHandler(topic, async ({ id }, tools) => {
        calls += 1;
        await writeEffect(tools, id);
        if (id === 'e317') throw new Error('poison');
      }),
    ],
  });
  await world.untilCommitted(topic, 500);
  expect(await sortedEffects(world)).toEqual(
    ids(500)
      .filter((id) => id !== 'e317')
      .sort(),
  );
  expect(await parkedRows(world)).toMatchObject([{ event_id: 'e317', reason: 'exhausted', attempts: 2 }]);
  expect(calls).toBeLessThanOrEqual(500 + 200 + 20 + 3);
});

test('F41 a poison that only COMMIT refuses is found by halves', async () => {
  const world = await testWorld();
  const topic = await world.topic();
  let calls = 0;
  await world.db.query('CREATE TABLE one (id text PRIMARY KEY)');
  await world.db.query(
    'CREATE TABLE references_one (id text REFERENCES one (id) DEFERRABLE INITIALLY DEFERRED, event_id text NOT NULL)',
  );
  await world.send(topic, ...events(100));
  await testService(world, {
    options: { ...interleaved(10, 50), retry: TWICE },
    controllers: [
      eventHandler(topic, async ({ id }, { dataSource }) => {
        calls += 1;
        await dataSource.query('INSERT INTO references_one (id, event_id) VALUES ($1, $1)', [id]);
        if (id !== 'e17') await dataSource.query('INSERT INTO one (id) VALUES ($1)', [id]);
      }),
    ],
  });
  await world.untilCommitted(topic, 100);
  const rows = await world.db.query<{ event_id: string }[]>('SELECT event_id FROM references_one');
  expect(rows.map(({ event_id }) => event_id).sort()).toEqual(
    ids(100)
      .filter((id) => id !== 'e17')
      .sort(),
  );
  expect(await parkedRows(world)).toMatchObject([{ event_id: 'e17' }]);
  expect(calls).toBeLessThanOrEqual(100 * 4);
});

test.each(Object.keys(wrongs))(
  'a handler that %s is blamed alone; the others at work have their effects once',
  async (wrong) => {
    const world = await testWorld();
    const topic = await world.topic();
    const calls = new Map<string, number>();
    await world.send(topic, ...events(6));
    await testService(world, {
      options: { ...interleaved(6, 10), retry: TWICE, timeout: 700 },
      controllers: [
        eventHandler(topic, async ({ id }, tools) => {
          calls.set(id, (calls.get(id) ?? 0) + 1);
          await writeEffect(tools, id);
          if (id === 'e2') await wrongs[wrong]!.does(tools.dataSource);
          else if (calls.get(id) === 1) await tools.dataSource.query('SELECT pg_sleep(0.02)'); // at work when e2 goes wrong
        }),
      ],
    });
    await world.untilCommitted(topic, 6);
    expect(await sortedEffects(world)).toEqual(ids(6).filter((id) => id !== 'e2'));
    expect(await parkedRows(world)).toMatchObject([{ event_id: 'e2', error_code: wrongs[wrong]!.code }]);
    // In the first group, and in one of the two that were made of what is good in it.
    expect(Object.fromEntries(calls)).toEqual({ e0: 2, e1: 2, e2: 3, e3: 2, e4: 2, e5: 2 });
  },
);

test('what other handlers have in flight does not fail one that has ended', async () => {
  const world = await testWorld();
  const topic = await world.topic();
  let calls = 0;
  await world.send(topic, ...events(5));
  await testService(world, {
    options: { ...interleaved(5, 10), retry: TWICE },
    controllers: [
      eventHandler(topic, async ({ id }, tools) => {
        calls += 1;
        await writeEffect(tools, id);
        if (id === 'e0') await tools.dataSource.query('SELECT pg_sleep(0.3)'); // in flight when the others end
      }),
    ],
  });
  await world.untilCommitted(topic, 5);
  expect(calls).toBe(5);
  expect(await transactions(world)).toBe(1);
});

test('a text of several commands makes its record run by itself, where it works', async () => {
  const world = await testWorld();
  const topic = await world.topic();
  await world.send(topic, ...events(6));
  await testService(world, {
    options: { ...interleaved(6, 10), retry: TWICE },
    controllers: [
      eventHandler(topic, async ({ id }, tools) => {
        await writeEffect(tools, id);
        if (id === 'e2') await tools.dataSource.query('SELECT 1; SELECT 2');
      }),
    ],
  });
  await world.untilCommitted(topic, 6);
  expect(await sortedEffects(world)).toEqual(ids(6));
  expect(await parkedRows(world)).toEqual([]);
  expect(await transactions(world)).toBe(3);
});

test('nested transactions of handlers at work at once: one that is rolled back takes nothing of another with it', async () => {
  const world = await testWorld();
  const topic = await world.topic();
  let calls = 0;
  await world.send(topic, ...events(20));
  await testService(world, {
    options: interleaved(20, 20),
    controllers: [
      eventHandler(topic, async ({ id }, tools) => {
        calls += 1;
        await writeEffect(tools, id, 'before');
        const isUndone = Number(id.slice(1)) % 2 === 1;
        await tools.dataSource
          .transaction(async () => {
            await writeEffect(tools, id, 'inside');
            if (isUndone) throw new Error('undo this');
          })
          .catch(() => undefined);
        await writeEffect(tools, id, 'after');
      }),
    ],
  });
  await world.untilCommitted(topic, 20);
  expect((await world.effects('before')).sort()).toEqual(ids(20).sort());
  expect((await world.effects('after')).sort()).toEqual(ids(20).sort());
  expect((await world.effects('inside')).sort()).toEqual(
    ids(20)
      .filter((_, at) => at % 2 === 0)
      .sort(),
  );
  expect(calls).toBe(20);
});

test('while another session holds one of the claims the records go one by one, and none fails', async () => {
  const world = await testWorld();
  const topic = await world.topic();
  const other = await testSession(world);
  await other.startTransaction();
  await other.query(
    `INSERT INTO processed_events (consumer, event_id, topic, partition, record_offset, fingerprint) VALUES ('test', 'e3', 'x', 0, 0, 0)`,
  );
  await world.send(topic, ...events(6));
  const service = await testService(world, {
    options: { ...interleaved(4, 10), claimTimeout: 200 },
    controllers: [eventHandler(topic, ({ id }, tools) => writeEffect(tools, id))],
  });
  expect(await world.untilEffects(3)).toEqual(ids(3));
  await until(() => service.named('busy').length > 0, { what: 'busy' });
  await other.rollbackTransaction();
  await world.untilCommitted(topic, 6);
  expect(await world.effects()).toEqual(ids(6));
  expect(service.failures).toEqual([]);
});

test('a record without an id and one that cannot be decoded are parked, and the others of the group are not touched', async () => {
  const world = await testWorld();
  const topic = await world.topic();
  const service = await startService(world, {
    options: { ...interleaved(4, 20), retry: TWICE },
    controllers: [eventHandler(topic, ({ id }, tools) => writeEffect(tools, id))],
  });
  onTestFinished(() => service.close());
  service.server.pause(topic);
  await world.send(topic, ...events(5));
  await world.sendRaw(topic, { key: 'n', value: JSON.stringify({ id: 'nobody' }) });
  await world.send(topic, ...events(5, 5));
  await world.sendRaw(topic, { key: 'b', value: '{', headers: { 'event-id': 'broken' } });
  await world.send(topic, ...events(5, 10));
  service.server.resume(topic);
  await world.untilCommitted(topic, 17);
  expect(await sortedEffects(world)).toEqual(ids(15).sort());
  expect((await parkedRows(world)).map(({ offset, reason }) => `${offset} ${reason}`)).toEqual([
    '5 missing-id',
    '11 decoding',
  ]);
});

test('F43 a process killed in the middle of a group leaves nothing of it, and the next one does all of it', async () => {
  const world = await testWorld();
  const topic = await world.topic();
  await world.send(topic, ...events(30));
  const plan = { topic, messagesPerTransaction: 10, keys: 4, interleave: true };
  const first = testWorker(world, { ...plan, failpoint: { at: 'handled', offset: '15' } });
  expect(await first.untilEnded()).toMatchObject({ signal: 'SIGKILL' });
  expect(await sortedEffects(world)).toEqual(ids(10));
  expect(await world.processed()).toEqual(ids(10).map((id) => `test/${id}`));
  testWorker(world, plan);
  await world.untilCommitted(topic, 30);
  expect(await sortedEffects(world)).toEqual(ids(30).sort());
});

test.each(['swallowCommitReply', 'cutBeforeCommit'] as const)(
  'F43 COMMIT of a group meets %s: each event has its effect once, and none is parked',
  async (fault) => {
    const world = await testWorld();
    const topic = await world.topic();
    const proxy = await testProxy(world);
    const hit = proxy[fault]();
    await world.send(topic, ...events(20));
    await testService(world, {
      databaseUrl: proxy.url,
      options: { ...interleaved(8, 20), retry: TWICE },
      controllers: [eventHandler(topic, ({ id }, tools) => writeEffect(tools, id))],
    });
    await hit.hit;
    await world.untilCommitted(topic, 20);
    expect(await sortedEffects(world)).toEqual(ids(20).sort());
    expect(await parkedRows(world)).toEqual([]);
  },
);

test('a session that the server ends under handlers at work parks nothing, and each event has its effect once', async () => {
  const world = await testWorld();
  const topic = await world.topic();
  let ended = 0;
  await world.send(topic, ...events(10));
  await testService(world, {
    options: { ...interleaved(5, 10), retry: TWICE },
    controllers: [
      eventHandler(topic, async ({ id }, tools) => {
        await writeEffect(tools, id);
        if (id === 'e6' && (ended += 1) === 1) {
          const [{ pid }] = (await tools.dataSource.query('SELECT pg_backend_pid() AS pid')) as [{ pid: number }];
          await world.db.query('SELECT pg_terminate_backend($1)', [pid]);
        }
        await tools.dataSource.query('SELECT pg_sleep(0.05)'); // in flight when the session ends
      }),
    ],
  });
  await world.untilCommitted(topic, 10);
  expect(await sortedEffects(world)).toEqual(ids(10));
  expect(await parkedRows(world)).toEqual([]);
  expect(ended).toBeGreaterThan(1);
});

test('a record that kills its process among others at work is found and parked, and none of its group is blamed', async () => {
  const world = await testWorld();
  const topic = await world.topic();
  await world.send(topic, ...events(8));
  const plan = { topic, messagesPerTransaction: 8, keys: 4, interleave: true, deadly: ['e5'] };
  for (let deaths = 0; deaths < 4; deaths += 1) {
    const worker = testWorker(world, plan);
    expect(await worker.untilEnded()).toMatchObject({ signal: 'SIGKILL' });
  }
  testWorker(world, plan);
  await world.untilCommitted(topic, 8);
  expect(await sortedEffects(world)).toEqual(ids(8).filter((id) => id !== 'e5'));
  expect(await parkedRows(world)).toMatchObject([{ event_id: 'e5', reason: 'process-death' }]);
});

test('B29 a partition that is lost while several of its records are at work: their signals abort, no further one begins, and each event has its effect once', async () => {
  const world = await testWorld();
  const topic = await world.topic(2);
  const all = Array.from({ length: 80 }, (_, at) => `${at % 2}-${Math.floor(at / 2)}`);
  await world.send(topic, ...all.map((id, at) => ({ id, key: id, partition: at % 2 })));
  const goOn = new Gate();
  const reached = new Meeting(6);
  const aborted: string[] = [];
  const serviceOf = (waitsAt: readonly string[]) =>
    testService(world, {
      options: interleaved(3, 20),
      controllers: [
        eventHandler(topic, async ({ id }, tools) => {
          await writeEffect(tools, id);
          if (!waitsAt.includes(id)) return;
          currentDelivery()!.signal.addEventListener('abort', () => aborted.push(id));
          void reached.arrive();
          await goOn.passed;
        }),
      ],
    });
  const waiting = ['5', '6', '7'].flatMap((seq) => [`0-${seq}`, `1-${seq}`]);
  const first = await serviceOf(waiting);
  await until(() => reached.came === 6, { what: 'the middle of both groups', timeoutMs: 30_000 });
  const second = await serviceOf([]);
  await until(() => first.named('revoked').length > 0, { what: 'the loss', timeoutMs: 30_000 });
  goOn.open();
  for (const partition of [0, 1]) await world.untilCommitted(topic, 40, partition);
  expect(startsOnLostPartitions(first)).toEqual([]);
  expect(aborted).toHaveLength(3);
  expect(second.named('processed').length).toBeGreaterThan(0);
  expect(await sortedEffects(world)).toEqual([...all].sort());
});

test('past the deadline of a shutdown all handlers at work are told and ended, and nothing of them is left', async () => {
  const world = await testWorld();
  const topic = await world.topic();
  const meeting = new Meeting(3);
  const reasons: unknown[] = [];
  await world.send(topic, ...events(3));
  const service = await testService(world, {
    options: { ...interleaved(3, 10), shutdown: { deadline: 500 } },
    controllers: [
      eventHandler(topic, async ({ id }, tools) => {
        await writeEffect(tools, id);
        await meeting.arrive();
        const { signal } = currentDelivery()!;
        await new Promise((resolve) => signal.addEventListener('abort', resolve));
        reasons.push((signal.reason as { code?: string }).code);
        await new Gate().passed;
      }),
    ],
  });
  await until(() => meeting.came === 3, { what: 'all three at work', timeoutMs: 30_000 });
  await service.close();
  expect(reasons).toEqual(Array.from({ length: 3 }, () => 'SHUTDOWN_DEADLINE'));
  expect(await world.effects()).toEqual([]);
  expect(await world.processed()).toEqual([]);
});

test.each<[string, object, (topic: string) => Type, RegExp]>([
  [
    'without messagesPerTransaction',
    { concurrency: { keys: 4, interleave: true } },
    (topic) => eventHandler(topic, () => undefined),
    /messagesPerTransaction/,
  ],
  [
    'with a handler of batches',
    { concurrency: { keys: 4, interleave: true } },
    (topic) => batchHandler(topic, () => undefined),
    /takes batches/,
  ],
])('interleave is refused at start-up %s', async (_, options, controllerOf, message) => {
  const world = await testWorld();
  const topic = await world.topic();
  const starting = startService(world, { options, controllers: [controllerOf(topic)] });
  const error: unknown = await starting.catch((refused: unknown) => refused);
  expect(IdempotencyError.is(error, 'OPTIONS_INVALID')).toBe(true);
  expect((error as Error).message).toMatch(message);
});
