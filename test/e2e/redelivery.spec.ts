import { Controller, type Type } from '@nestjs/common';
import { Payload } from '@nestjs/microservices';
import { expect, test } from 'vitest';
import { currentDelivery, ParkedEvents, type IdempotencyOptions } from 'nestjs-kafka-idempotency';
import { until } from 'nestjs-kafka-idempotency/testing';
import { eventHandler, Gate, writeEffect, type TestEvent } from './kit/handlers.js';
import { testService, testWorld } from './kit/in-test.js';
import { parkedRows } from './kit/parked.js';
import { OnTopic, type RunningService } from './kit/service.js';
import type { World } from './kit/world.js';

const THREE = { attempts: 3, delay: 10, factor: 1, jitter: 'none' } as const;
/** Parked events wait for a person. */
const HELD: Partial<IdempotencyOptions> = {
  retry: THREE,
  holdKey: true,
  redelivery: { rounds: 0 },
  parking: { poll: 50 },
};

interface Numbered extends TestEvent {
  readonly key: string;
  readonly seq: number;
}

/** Fails at `broken` while it holds them; effects carry key and seq. */
function numberedHandler(topic: string, broken: ReadonlySet<string>): Type {
  return eventHandler<Numbered>(topic, async ({ id, key, seq }, { dataSource }) => {
    await dataSource.query('INSERT INTO effects (event_id, key, seq) VALUES ($1, $2, $3)', [id, key, seq]);
    if (broken.has(id)) throw new Error(`no luck with ${id}`);
  });
}

function numbered(count: number, keys: number): { id: string; key: string; payload: object }[] {
  return Array.from({ length: count }, (_, at) => {
    const key = `k${at % keys}`;
    return { id: `e${at}`, key, payload: { key, seq: Math.floor(at / keys) } };
  });
}

async function sequences(world: World): Promise<Map<string, number[]>> {
  const rows = await world.db.query<{ key: string; seqs: number[] }[]>(
    `SELECT key, array_agg(seq ORDER BY id) AS seqs FROM effects GROUP BY key`,
  );
  return new Map(rows.map(({ key, seqs }) => [key, seqs]));
}

const upTo = (count: number): number[] => Array.from({ length: count }, (_, at) => at);
const parkedEvents = (service: RunningService): ParkedEvents => service.app.get(ParkedEvents);

test('one poison record among 10,000: it alone is parked, and the order of every key is kept', async () => {
  const world = await testWorld();
  const topic = await world.topic(3);
  await testService(world, { options: { retry: THREE }, controllers: [numberedHandler(topic, new Set(['e5000']))] });
  const events = numbered(10_000, 20);
  for (let at = 0; at < events.length; at += 2000) await world.send(topic, ...events.slice(at, at + 2000));
  await until(async () => (await world.effects()).length === 9999 && (await parkedRows(world)).length === 1, {
    what: 'all of them',
    timeoutMs: 60_000,
    intervalMs: 500,
  });
  expect(await parkedRows(world)).toMatchObject([{ event_id: 'e5000', state: 'dead' }]);
  for (const [key, seqs] of await sequences(world))
    expect(seqs).toEqual(upTo(500).filter((seq) => key !== 'k0' || seq !== 250));
});

test('with holdKey the later events of its key wait, and come in order after a replay; other keys go on', async () => {
  const world = await testWorld();
  const topic = await world.topic(2);
  const broken = new Set(['e10']);
  const service = await testService(world, { options: HELD, controllers: [numberedHandler(topic, broken)] });
  await world.send(topic, ...numbered(200, 5));
  await until(async () => (await world.effects()).length + (await parkedRows(world)).length === 200, { what: 'all' });
  const rows = await parkedRows(world);
  expect(rows.map(({ state, event_id }) => `${state} ${event_id}`).slice(0, 1)).toEqual(['dead e10']);
  expect(rows.slice(1).every(({ state, reason }) => state === 'held' && reason === 'behind')).toBe(true);
  expect(rows).toHaveLength(38);
  expect((await sequences(world)).get('k0')).toEqual([0, 1]);
  expect((await sequences(world)).get('k1')).toEqual(upTo(40));
  expect(await parkedEvents(service).count()).toEqual({ dead: 1, held: 37, scheduled: 0, discarded: 0 });

  broken.clear();
  expect(await parkedEvents(service).replay({ state: 'dead' }, { by: 'test' })).toMatchObject({ processed: 1 });
  await world.untilEffects(200);
  await until(async () => (await parkedRows(world)).length === 0, { what: 'an empty table' });
  expect((await sequences(world)).get('k0')).toEqual(upTo(40));

  await world.send(topic, { id: 'after', key: 'k0', payload: { key: 'k0', seq: 40 } });
  await world.untilEffects(201);
  expect(await parkedRows(world)).toEqual([]);
  expect(await world.processed()).toHaveLength(201);
});

test('events that come while those in front of them are redelivered keep their order', async () => {
  const world = await testWorld();
  const topic = await world.topic();
  const broken = new Set(['e0']);
  const service = await testService(world, { options: HELD, controllers: [numberedHandler(topic, broken)] });
  const events = numbered(300, 1);
  await world.send(topic, ...events.slice(0, 100));
  await until(async () => (await parkedRows(world)).length === 100, { what: 'a hundred parked' });
  broken.clear();
  const sending = (async () => {
    for (let at = 100; at < 300; at += 10) await world.send(topic, ...events.slice(at, at + 10));
  })();
  await parkedEvents(service).replay({ state: 'dead' }, { by: 'test' });
  await sending;
  await world.untilEffects(300);
  expect((await sequences(world)).get('k0')).toEqual(upTo(300));
  expect(await parkedRows(world)).toEqual([]);
});

test('a parked event comes back by itself as often as redelivery says, and is dead after that', async () => {
  const world = await testWorld();
  const topic = await world.topic();
  const attempts: Record<string, number[]> = { mends: [], never: [] };
  const service = await testService(world, {
    options: {
      retry: { ...THREE, attempts: 1 },
      redelivery: { rounds: 3, delay: 50, factor: 1, maxDelay: 50 },
      parking: { poll: 30 },
    },
    controllers: [
      eventHandler(topic, async ({ id }, tools) => {
        await writeEffect(tools, id);
        attempts[id]?.push(currentDelivery()?.attempt ?? 0);
        if (id === 'never' || (attempts[id]?.length ?? 0) < 3) throw new Error('no');
      }),
    ],
  });
  await world.send(topic, { id: 'mends' }, { id: 'never' });
  await until(async () => (await parkedRows(world))[0]?.state === 'dead', { what: 'the end of the rounds' });
  expect(attempts).toEqual({ mends: [1, 2, 3], never: [1, 2, 3, 4] });
  expect(await parkedRows(world)).toMatchObject([{ event_id: 'never', rounds: 3, attempts: 4, reason: 'exhausted' }]);
  expect(await world.effects()).toEqual(['mends']);
  expect(await world.processed()).toEqual(['test/mends']);
  expect(service.named('parked').map(({ state }) => state)).toEqual(['scheduled', 'scheduled', 'dead']);
});

test('F40 a replay runs an event that never succeeded, and skips one that did', async () => {
  const world = await testWorld();
  const topic = await world.topic();
  const broken = new Set(['a', 'b']);
  let calls = 0;
  const service = await testService(world, {
    options: { retry: THREE },
    controllers: [
      eventHandler(topic, async ({ id }, tools) => {
        calls += 1;
        await writeEffect(tools, id);
        if (broken.has(id)) throw new Error('no');
      }),
    ],
  });
  await world.send(topic, { id: 'a' }, { id: 'b' });
  await world.untilCommitted(topic, 2);
  broken.clear();
  await world.send(topic, { id: 'b' }); // its producer sent it again, and this time it works
  await world.untilEffects(1);
  calls = 0;
  const parked = parkedEvents(service);
  expect(await parked.replay({ state: 'dead' }, { by: 'test', dryRun: true })).toMatchObject({
    processed: 1,
    duplicate: 1,
  });
  expect(calls).toBe(0);
  expect(await parked.replay({ state: 'dead' }, { by: 'test' })).toMatchObject({ processed: 1, duplicate: 1 });
  expect(calls).toBe(1);
  expect(await world.effects()).toEqual(['b', 'a']);
  expect(await parkedRows(world)).toEqual([]);
  expect(service.named('replayed').map(({ outcome, by }) => `${outcome} ${by}`)).toEqual([
    'processed test',
    'duplicate test',
  ]);
});

test('a replay that fails leaves the event where it was, with one more entry in its history', async () => {
  const world = await testWorld();
  const topic = await world.topic();
  const service = await testService(world, {
    options: { retry: THREE },
    controllers: [numberedHandler(topic, new Set(['e0']))],
  });
  await world.send(topic, ...numbered(1, 1));
  await world.untilCommitted(topic, 1);
  expect(await parkedEvents(service).replay({ eventId: 'e0' }, { by: 'test' })).toMatchObject({ failed: 1 });
  expect(await parkedRows(world)).toMatchObject([{ state: 'dead', replays: 1 }]);
  expect(await world.effects()).toEqual([]);
  expect(await world.processed()).toEqual([]);
});

test('an event without an id is handled once somebody has given it one', async () => {
  const world = await testWorld();
  const topic = await world.topic();
  const service = await testService(world, {
    controllers: [eventHandler(topic, ({ id }, tools) => writeEffect(tools, id))],
  });
  await world.sendRaw(topic, { value: '{"id":"broken' });
  await world.untilCommitted(topic, 1);
  const parked = parkedEvents(service);
  const [event] = await parked.list({});
  expect(event).toMatchObject({ state: 'dead', reason: 'decoding' });
  await parked.edit(event!.id, {
    value: Buffer.from('{"id":"mended"}'),
    headers: [['event-id', Buffer.from('x1')]],
    version: event!.version,
    by: 'test',
  });
  expect(await parked.replay({ ids: [event!.id] }, { by: 'test' })).toMatchObject({ processed: 1 });
  expect(await world.effects()).toEqual(['mended']);
  expect(await world.processed()).toEqual(['test/x1']);
});

test('a discarded event is never run, also when Kafka brings it again, and holds its key no more', async () => {
  const world = await testWorld();
  const topic = await world.topic();
  const options = { options: HELD, controllers: [numberedHandler(topic, new Set(['e0']))] };
  const first = await testService(world, options);
  await world.send(topic, ...numbered(3, 1));
  await until(async () => (await parkedRows(world)).length === 3, { what: 'one dead and two held' });
  await world.untilCommitted(topic, 3);
  expect(await parkedEvents(first).discard({ eventId: 'e0' }, { by: 'test', why: 'sent by mistake' })).toBe(1);
  await world.untilEffects(2);
  expect((await sequences(world)).get('k0')).toEqual([1, 2]);
  await first.close();
  await world.admin.setOffsets({ groupId: world.group, topic, partitions: [{ partition: 0, offset: '0' }] });
  const second = await testService(world, options);
  await world.send(topic, { id: 'e3', key: 'k0', payload: { key: 'k0', seq: 3 } });
  await world.untilCommitted(topic, 4);
  expect(second.named('received').map(({ offset }) => offset)).toEqual(['1', '2', '3']);
  expect(await world.effects()).toEqual(['e1', 'e2', 'e3']);
});

test('two instances redeliver each event once', async () => {
  const world = await testWorld();
  const topic = await world.topic();
  const broken = new Set(upTo(60).map((at) => `e${at}`));
  const options = {
    options: {
      retry: { ...THREE, attempts: 1 },
      redelivery: { rounds: 1, delay: 4000, factor: 1, maxDelay: 4000 },
      parking: { poll: 20 },
    },
    controllers: [numberedHandler(topic, broken)],
  };
  const services = [await testService(world, options), await testService(world, options)];
  await world.send(topic, ...numbered(60, 60));
  await until(async () => (await parkedRows(world)).length === 60, { what: 'all parked' });
  broken.clear();
  await world.untilEffects(60);
  await until(async () => (await parkedRows(world)).length === 0, { what: 'an empty table' });
  expect(await world.effects()).toHaveLength(60);
  const redelivered = services.flatMap((service) => service.named('received').filter(({ attempt }) => attempt === 2));
  expect(redelivered).toHaveLength(60);
});

test('a handler without @Idempotent gets its parked event again, and the row goes when it has succeeded', async () => {
  const world = await testWorld();
  const topic = await world.topic();
  const seen: string[] = [];
  let isBroken = true;
  @Controller()
  class Plain {
    @OnTopic(topic)
    handle(@Payload() { id }: TestEvent) {
      seen.push(id);
      if (isBroken) throw new Error('no');
    }
  }
  const service = await testService(world, { options: { retry: { ...THREE, attempts: 1 } }, controllers: [Plain] });
  await world.send(topic, { id: 'a' });
  await world.untilCommitted(topic, 1);
  isBroken = false;
  expect(await parkedEvents(service).replay({ state: 'dead' }, { by: 'test' })).toMatchObject({ processed: 1 });
  expect(seen).toEqual(['a', 'a']);
  expect(await parkedRows(world)).toEqual([]);
});

test('closing waits for an event that is being redelivered', async () => {
  const world = await testWorld();
  const topic = await world.topic();
  const [began, goOn] = [new Gate(), new Gate()];
  const service = await testService(world, {
    options: {
      retry: { ...THREE, attempts: 1 },
      redelivery: { rounds: 2, delay: 20, factor: 1, maxDelay: 20 },
      parking: { poll: 20 },
    },
    controllers: [
      eventHandler(topic, async ({ id }, tools) => {
        if (currentDelivery()?.attempt === 1) throw new Error('no');
        began.open();
        await goOn.passed;
        await writeEffect(tools, id);
      }),
    ],
  });
  await world.send(topic, { id: 'a' });
  await began.passed;
  const closing = service.close();
  await until(() => !service.server.health().ready, { what: 'the drain' });
  goOn.open();
  await closing;
  expect(await world.effects()).toEqual(['a']);
  expect(await parkedRows(world)).toEqual([]);
});

test('closing does not wait beyond its deadline for a redelivery that hangs, and the round counts for nothing', async () => {
  const world = await testWorld();
  const topic = await world.topic();
  const began = new Gate();
  const service = await testService(world, {
    options: {
      retry: { ...THREE, attempts: 1 },
      redelivery: { rounds: 1, delay: 20, factor: 1, maxDelay: 20 },
      parking: { poll: 20 },
      shutdown: { deadline: 500 },
    },
    controllers: [
      eventHandler(topic, async (_event, tools) => {
        if (currentDelivery()?.attempt === 1) throw new Error('no');
        await writeEffect(tools, 'half');
        began.open();
        await new Promise(() => undefined);
      }),
    ],
  });
  await world.send(topic, { id: 'a' });
  await began.passed;
  const since = performance.now();
  await service.close();
  expect(performance.now() - since).toBeLessThan(5000);
  expect(await world.effects()).toEqual([]);
  expect(await parkedRows(world)).toMatchObject([{ state: 'scheduled', rounds: 0, attempts: 1 }]);
});

test('an event that was held has the tries of any other when its turn comes, and is found by its id before', async () => {
  const world = await testWorld();
  const topic = await world.topic();
  const broken = new Set(['e0']);
  const failed: string[] = [];
  const service = await testService(world, {
    options: HELD,
    controllers: [
      eventHandler<Numbered>(topic, async ({ id, key, seq }, { dataSource }) => {
        await dataSource.query('INSERT INTO effects (event_id, key, seq) VALUES ($1, $2, $3)', [id, key, seq]);
        const isUnlucky = id === 'e1' && failed.length < 2;
        if (isUnlucky) failed.push(id);
        if (isUnlucky || broken.has(id)) throw new Error(`no luck with ${id}`);
      }),
    ],
  });
  await world.send(topic, ...numbered(3, 1));
  await until(async () => (await parkedRows(world)).length === 3, { what: 'one dead and two held' });
  expect(await parkedEvents(service).list({ eventId: 'e1' })).toMatchObject([{ state: 'held' }]);
  broken.clear();
  await parkedEvents(service).replay({ state: 'dead' }, { by: 'test' });
  await world.untilEffects(3);
  expect(failed).toHaveLength(2);
  expect((await sequences(world)).get('k0')).toEqual([0, 1, 2]);
  expect(await parkedRows(world)).toEqual([]);
});
