import { setTimeout as sleep } from 'node:timers/promises';
import type { Logger } from 'typeorm';
import { expect, test } from 'vitest';
import { until } from 'nestjs-kafka-idempotency/testing';
import { eventHandler, Gate, writeEffect, type TestEvent } from './kit/handlers.js';
import { testService, testSession, testWorld } from './kit/in-test.js';
import { numbered, numberedHandler } from './kit/numbered.js';
import type { RunningService } from './kit/service.js';
import type { World } from './kit/world.js';

// Records whose events were handled before: a claim each, until they are seen to come in a run; then many are looked up at once.

const ids = (count: number): string[] => Array.from({ length: count }, (_, at) => `e${at}`);
const events = (count: number): TestEvent[] => ids(count).map((id) => ({ id }));

/** As if the consumer had handled them. */
async function handledBefore(world: World, eventIds: readonly string[], consumer = 'test'): Promise<void> {
  await world.db.query(
    `INSERT INTO processed_events (consumer, event_id, topic, partition, record_offset, fingerprint)
     SELECT $1, event_id, 'before', 0, 0, 0 FROM unnest($2::text[]) AS event_id`,
    [consumer, [...eventIds]],
  );
}

/** Hears of the statements that go through TypeORM: the probes do, claims do not. */
function probesOf(asked: (ids: number) => void): { logging: ['query']; logger: Logger } {
  const nothing = () => undefined;
  return {
    logging: ['query'],
    logger: {
      logQuery: (query, parameters) => {
        if (query.includes('event_id = ANY')) asked((parameters as [string, string[]])[1].length);
      },
      logQueryError: nothing,
      logQuerySlow: nothing,
      logSchemaBuild: nothing,
      logMigration: nothing,
      log: nothing,
    },
  };
}

function duplicatesOf(service: RunningService, consumer = 'test'): string[] {
  return service.named('duplicate').flatMap((event) => (event.consumer === consumer ? [event.eventId ?? ''] : []));
}

test.each([
  ['one by one', {}],
  ['keys at once', { concurrency: { keys: 4 } }],
  ['shared transactions', { messagesPerTransaction: 50 }],
])('a backlog of records handled before is skipped by few probes: %s', async (_how, options) => {
  const world = await testWorld();
  const topic = await world.topic();
  const count = 2000;
  await handledBefore(world, ids(count));
  await world.send(topic, ...events(count).map(({ id }, at) => ({ id, key: `k${at % 7}` })));
  const probes: number[] = [];
  const service = await testService(world, {
    controllers: [eventHandler(topic, ({ id }, tools) => writeEffect(tools, id))],
    options,
    typeOrm: probesOf((asked) => probes.push(asked)),
  });
  await world.untilCommitted(topic, count);
  expect(duplicatesOf(service).sort()).toEqual(ids(count).sort());
  expect(service.named('received').length).toBeLessThanOrEqual(60);
  expect(probes.length).toBeLessThan(20);
  expect(Math.max(...probes)).toBeGreaterThan(200);
  expect(await world.effects()).toEqual([]);
});

test.each([
  ['one by one', {}],
  ['keys at once', { concurrency: { keys: 4 } }],
  ['shared transactions', { messagesPerTransaction: 10 }],
])('of duplicates and fresh events mixed each fresh one runs once and in order: %s', async (_how, options) => {
  const world = await testWorld();
  const topic = await world.topic();
  const all = numbered(0, 400);
  // A run, one in three, three in four, none for a while, and a run again.
  const isHandled = (seq: number) =>
    seq < 60 || (seq < 160 && seq % 3 === 0) || (seq < 260 && seq % 4 > 0) || (seq >= 330 && seq < 380);
  const seqs = all.map(({ payload }) => payload.seq);
  await handledBefore(
    world,
    seqs.filter(isHandled).map((seq) => `0-${seq}`),
  );
  await world.send(topic, ...all.map((event) => ({ ...event, key: `k${event.payload.seq % 5}` })));
  const service = await testService(world, { controllers: [numberedHandler(topic, 0)], options });
  await world.untilCommitted(topic, all.length);
  const rows = await world.db.query<{ seq: number }[]>('SELECT seq FROM effects ORDER BY id');
  const fresh = seqs.filter((seq) => !isHandled(seq));
  for (let key = 0; key < 5; key += 1) {
    const ofKey = (seq: number) => seq % 5 === key;
    expect(rows.map(({ seq }) => seq).filter(ofKey)).toEqual(fresh.filter(ofKey));
  }
  expect(duplicatesOf(service).sort()).toEqual(
    seqs
      .filter(isHandled)
      .map((seq) => `0-${seq}`)
      .sort(),
  );
  expect(service.named('received').length).toBeLessThan(all.length - 100);
});

test('a lane without duplicates is never looked up', async () => {
  const world = await testWorld();
  const topic = await world.topic();
  const probes: number[] = [];
  await testService(world, {
    controllers: [eventHandler(topic, ({ id }, tools) => writeEffect(tools, id))],
    typeOrm: probesOf((asked) => probes.push(asked)),
  });
  await world.send(topic, ...events(100));
  await world.untilCommitted(topic, 100);
  expect(probes).toEqual([]);
});

test('a record that another instance is handling right now is not taken for a duplicate: its claim waits', async () => {
  const world = await testWorld();
  const topic = await world.topic();
  await handledBefore(
    world,
    ids(100).filter((id) => id !== 'e50'),
  );
  const other = await testSession(world);
  await other.startTransaction();
  await other.query(
    `INSERT INTO ${world.schema}.processed_events (consumer, event_id, topic, partition, record_offset, fingerprint) VALUES ('test', 'e50', $1, 0, 50, 0)`,
    [topic],
  );
  await world.send(topic, ...events(100));
  const service = await testService(world, {
    controllers: [eventHandler(topic, ({ id }, tools) => writeEffect(tools, id))],
    options: { claimTimeout: 100 },
  });
  await until(() => service.named('busy').some(({ eventId }) => eventId === 'e50'), { what: 'the claim to be busy' });
  await until(() => duplicatesOf(service).includes('e49'), { what: 'those in front' });
  await world.untilCommitted(topic, 50);
  await other.rollbackTransaction();
  await world.untilCommitted(topic, 100);
  expect(await world.effects()).toEqual(['e50']);
  expect(duplicatesOf(service)).toHaveLength(99);
});

test('of two handlers the one that has not handled a record gets it', async () => {
  const world = await testWorld();
  const topic = await world.topic();
  await handledBefore(world, ids(100), 'one');
  await handledBefore(world, ids(60), 'two');
  await world.send(topic, ...events(100));
  const service = await testService(world, {
    controllers: ['one', 'two'].map((consumer) =>
      eventHandler(topic, ({ id }, tools) => writeEffect(tools, id, consumer), { consumer }),
    ),
  });
  await world.untilCommitted(topic, 100);
  expect(await world.effects('one')).toEqual([]);
  expect(await world.effects('two')).toEqual(ids(100).slice(60));
  expect(duplicatesOf(service, 'one').sort()).toEqual(ids(100).sort());
  expect(duplicatesOf(service, 'two').sort()).toEqual(ids(60).sort());
  expect(service.named('received').length).toBeLessThan(130);
});

test('a record without an event id, and one that something parked concerns, go their own way amid a run of duplicates', async () => {
  const world = await testWorld();
  const topic = await world.topic();
  const service = await testService(world, {
    controllers: [
      eventHandler(topic, ({ id }) => {
        throw new Error(`no luck with ${id}`);
      }),
    ],
    options: { retry: { attempts: 1 }, holdKey: true, redelivery: { rounds: 0 } },
  });
  await world.send(topic, { id: 'first', key: 'held' });
  await world.untilCommitted(topic, 1);
  await handledBefore(world, ids(99));
  service.server.pause(topic); // so that they come in one run
  await world.send(topic, ...events(30));
  await world.sendRaw(topic, { value: '{}' });
  await world.send(topic, ...events(60).slice(30));
  await world.send(topic, { id: 'e60', key: 'held' });
  await world.send(topic, ...events(99).slice(61));
  service.server.resume(topic);
  await world.untilCommitted(topic, 101);
  expect(service.named('parked')).toMatchObject([
    { offset: '0', state: 'dead' },
    { offset: '31', reason: 'missing-id' },
    { offset: '62', state: 'held' },
  ]);
  expect(duplicatesOf(service).sort()).toEqual(
    ids(99)
      .filter((id) => id !== 'e60')
      .sort(),
  );
});

test("a probe that fails is nobody's failure: the claims decide", async () => {
  const world = await testWorld();
  const topic = await world.topic();
  await handledBefore(world, ids(40));
  await world.send(topic, ...events(50));
  const service = await testService(world, {
    controllers: [eventHandler(topic, ({ id }, tools) => writeEffect(tools, id))],
    typeOrm: probesOf(() => {
      throw new Error('not now');
    }),
  });
  await world.untilCommitted(topic, 50);
  expect(await world.effects()).toEqual(ids(50).slice(40));
  expect(duplicatesOf(service)).toEqual(ids(40));
  expect(service.failures).toEqual([]);
});

test('a paused topic is not looked up either', async () => {
  const world = await testWorld();
  const topic = await world.topic();
  await handledBefore(world, ids(500));
  await world.send(topic, ...events(500));
  const probes: number[] = [];
  const service = await testService(world, {
    controllers: [eventHandler(topic, ({ id }, tools) => writeEffect(tools, id))],
    typeOrm: probesOf((asked) => {
      if (probes.push(asked) === 2) service.server.pause(topic);
    }),
  });
  await until(() => probes.length === 2, { what: 'the second probe' });
  await sleep(300); // what must not happen has no end to wait for
  expect(probes).toHaveLength(2);
  service.server.resume(topic);
  await world.untilCommitted(topic, 500);
  expect(duplicatesOf(service)).toHaveLength(500);
});

test('a probe waits for a slot as a delivery does', async () => {
  const world = await testWorld();
  const topic = await world.topic(2);
  await handledBefore(world, ids(50));
  const [atWork, gate] = [new Gate(), new Gate()];
  const probes: number[] = [];
  const service = await testService(world, {
    controllers: [
      eventHandler(topic, async () => {
        atWork.open();
        await gate.passed;
      }),
    ],
    options: { concurrency: { transactions: 1 } },
    typeOrm: probesOf((asked) => probes.push(asked)),
  });
  const inOther = events(50).map((event) => ({ ...event, partition: 1 }));
  await world.send(topic, ...inOther.slice(0, 2));
  await world.untilCommitted(topic, 2, 1);
  await world.send(topic, { id: 'fresh', partition: 0 });
  await atWork.passed;
  await world.send(topic, ...inOther.slice(2));
  const buffered = () => service.server.health().partitions.find(({ partition }) => partition === 1)?.buffered;
  await until(() => buffered() === 48, { what: 'the records to be fetched' });
  await sleep(200); // what must not happen has no end to wait for
  expect(probes).toEqual([]);
  gate.open();
  await world.untilCommitted(topic, 50, 1);
  expect(probes).toEqual([16, 32]);
});
