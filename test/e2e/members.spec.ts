import { setTimeout as sleep } from 'node:timers/promises';
import { expect, onTestFinished, test } from 'vitest';
import { until } from 'nestjs-kafka-idempotency/testing';
import { Random } from '../soak/random.js';
import { eventHandler, Gate, writeEffect, type TestEvent } from './kit/handlers.js';
import { testService, testWorker, testWorld } from './kit/in-test.js';
import {
  expectOnceInOrder,
  numbered,
  numberedHandler,
  sendNumbered,
  startsOnLostPartitions,
  type Numbered,
} from './kit/numbered.js';
import { parkedRows } from './kit/parked.js';
import type { RunningService } from './kit/service.js';
import type { Worker } from './kit/worker.js';
import type { World } from './kit/world.js';

const SESSION = 1500;
const shortSession = (world: World, more = {}) => ({
  kafka: { consumer: { groupId: world.group, sessionTimeout: SESSION, heartbeatInterval: 300, ...more } },
});

test('F12 workers killed at random: every event has its effect once, in order', async () => {
  const [partitions, each, seed] = [9, 150, 12];
  const random = new Random(seed);
  const world = await testWorld();
  const topic = await world.topic(partitions);
  const worker = () => testWorker(world, { topic, handlerMs: 15, numbered: true });
  const workers = [worker(), worker(), worker()];
  await sendNumbered(world, topic, partitions, each);
  await world.untilEffects(1);
  for (let kill = 0; kill < 10; kill += 1) {
    const at = random.between(0, workers.length - 1);
    await workers[at]!.kill();
    workers[at] = worker();
    await sleep(random.between(200, 2 * SESSION)); // the pace of the kills
  }
  await world.untilAtEnd(topic, 60_000);
  await expectOnceInOrder(world, partitions, each);
  expect(await parkedRows(world)).toEqual([]);
}, 180_000);

test('F32 a member that joins or leaves every two seconds: work goes on, offsets never go back, no effect is double, nothing is parked', async () => {
  const partitions = 6;
  const world = await testWorld();
  const topic = await world.topic(partitions);
  const all: RunningService[] = [];
  const join = async () => {
    const member = await testService(world, {
      controllers: [numberedHandler(topic, 10)],
      options: shortSession(world),
    });
    all.push(member);
    return member;
  };
  const members = [await join(), await join(), await join()];
  let sent = 0;
  const send = async () => {
    for (let partition = 0; partition < partitions; partition += 1)
      await world.send(topic, ...numbered(partition, 60, sent));
    sent += 60;
  };
  await send();
  const offsets = new Map<number, bigint>();
  const wentBack: string[] = [];
  for (let change = 0; change < 12; change += 1) {
    const handled = all.reduce((sum, member) => sum + member.named('processed').length, 0);
    if (sent * partitions - handled < 300) await send();
    const since = performance.now();
    if (change % 2 === 0) members.push(await join());
    else await members.shift()?.close();
    const before = (await world.effects()).length;
    await until(async () => (await world.effects()).length > before, { what: 'progress', timeoutMs: 4 * SESSION });
    for (let partition = 0; partition < partitions; partition += 1) {
      const [was, now] = [offsets.get(partition) ?? 0n, (await world.committed(topic, partition)) ?? 0n];
      if (now < was) wentBack.push(`${partition}: ${was} → ${now}`);
      offsets.set(partition, now);
    }
    await sleep(Math.max(0, 2000 - (performance.now() - since))); // the pace of the changes
  }
  await world.untilAtEnd(topic, 60_000);
  await expectOnceInOrder(world, partitions, sent);
  expect(wentBack).toEqual([]);
  expect(all.flatMap(startsOnLostPartitions)).toEqual([]);
  expect(all.flatMap((member) => member.named('gap'))).toEqual([]);
  expect(await parkedRows(world)).toEqual([]);
}, 180_000);

async function expectTakenOver(world: World, topic: string, first: Worker, wake: () => void): Promise<void> {
  const second = testWorker(world, { topic });
  await until(() => second.offsetsOf('busy').length > 0, { what: 'the second to meet the claim', timeoutMs: 20_000 });
  expect(second.calls).toEqual([]); // the event is not run beside its frozen self
  wake();
  await world.untilCommitted(topic, 2);
  expect((await world.effects()).sort()).toEqual(['a', 'b']);
  expect([...first.calls, ...second.calls].sort()).toEqual(['a', 'b']);
  // The offset the first one had was refused: whoever has the partition then is given the record again.
  expect([...first.offsetsOf('duplicate'), ...second.offsetsOf('duplicate')]).toContain('0');
  expect([...first.offsetsOf('failed'), ...second.offsetsOf('failed')]).toEqual([]);
  expect(await parkedRows(world)).toEqual([]);
}

test('F33 a worker frozen past its session before COMMIT: its transaction counts once it wakes, its offset does not', async () => {
  const world = await testWorld();
  const topic = await world.topic();
  await world.send(topic, { id: 'a' }, { id: 'b' });
  const zombie = testWorker(world, { topic, failpoint: { at: 'handled', offset: '0', signal: 'SIGSTOP' } });
  await until(() => zombie.calls.length === 1, { what: 'the handler to run', timeoutMs: 20_000 });
  await expectTakenOver(world, topic, zombie, () => zombie.signal('SIGCONT'));
});

test('F35 a worker whose event loop is busy past its session: its transaction counts when it is done, its offset does not', async () => {
  const world = await testWorld();
  const topic = await world.topic();
  await world.send(topic, { id: 'a' }, { id: 'b' });
  const blocked = testWorker(world, { topic, blocking: { id: 'a', ms: 6 * SESSION } });
  await until(() => blocked.calls.length === 1, { what: 'the handler to run', timeoutMs: 20_000 });
  await expectTakenOver(world, topic, blocked, () => undefined);
});

test('F34 a handler longer than session and rebalance timeout: heartbeats go on, its member joins once, another one waits for nothing', async () => {
  const world = await testWorld();
  const topic = await world.topic(2);
  const consumer = shortSession(world, { rebalanceTimeout: SESSION });
  const handler = eventHandler(topic, async ({ id }, tools) => {
    await writeEffect(tools, id);
    if (id === 'long') await sleep(4 * SESSION); // the length of the handler is the point
  });
  const service = await testService(world, { controllers: [handler], options: consumer });
  await world.send(topic, { id: 'long', partition: 0 }, { id: 'short', partition: 1 });
  await world.untilCommitted(topic, 1, 1);
  await world.untilCommitted(topic, 1, 0);
  expect((await world.effects()).sort()).toEqual(['long', 'short']);
  expect(service.named('received')).toHaveLength(2);
  expect(service.named('assigned')).toHaveLength(1);
  expect(service.named('outage')).toEqual([]);
});

test('B29 a second instance that joins at record 50 and is killed at 150: each event once, in order, none begun after its loss', async () => {
  const [partitions, each] = [4, 200];
  const random = new Random(29);
  const world = await testWorld();
  const topic = await world.topic(partitions);
  await sendNumbered(world, topic, partitions, each);
  let second: Worker | undefined;
  // However long the second one takes to come, there is enough left for it.
  const handlerMs = () => (second === undefined || second.calls.length === 0 ? 60 : random.between(5, 20));
  const first = await testService(world, {
    controllers: [numberedHandler(topic, handlerMs)],
    options: shortSession(world),
  });
  await world.untilEffects(50);
  const joined = testWorker(world, { topic, handlerMs: 12, numbered: true });
  second = joined;
  await until(() => joined.calls.length >= 100, { what: 'the second to work', timeoutMs: 30_000 });
  await joined.kill();
  await world.untilAtEnd(topic, 60_000);
  await expectOnceInOrder(world, partitions, each);
  expect(first.named('revoked').length).toBeGreaterThan(0);
  expect(startsOnLostPartitions(first)).toEqual([]);
}, 120_000);

test('B35 a record that waits for its next try holds its partition in order, and no other one', async () => {
  const world = await testWorld();
  const topic = await world.topic(2);
  let failures = 0;
  const handler = eventHandler<Numbered>(topic, async ({ id, partition, seq }, { dataSource }) => {
    await dataSource.query('INSERT INTO effects (event_id, key, seq) VALUES ($1, $2, $3)', [id, partition, seq]);
    if (id === '0-0' && (failures += 1) <= 2) throw new Error('not yet');
  });
  const service = await testService(world, {
    controllers: [handler],
    options: { retry: { attempts: 3, delay: 2000, factor: 1, jitter: 'none' } },
  });
  await world.send(topic, ...numbered(0, 3));
  await world.send(topic, ...numbered(1, 50));
  await world.untilCommitted(topic, 50, 1);
  expect(await world.committed(topic, 0)).toBe(0n);
  await world.untilCommitted(topic, 3, 0);
  await expectOnceInOrder(world, 2, [3, 50]);
  const begun = service.named('received').filter(({ partition }) => partition === 0);
  expect(begun.map(({ offset, attempt }) => `${offset}.${attempt}`)).toEqual(['0.1', '0.2', '0.3', '1.1', '2.1']);
  expect(service.named('outage')).toEqual([]);
});

test('F13 a small heap and a backlog of large events: the process survives, all are handled, what it holds is bounded', async () => {
  const [partitions, each] = [4, 50];
  const world = await testWorld();
  const topic = await world.topic(partitions);
  const pad = 'x'.repeat(1_000_000);
  for (let partition = 0; partition < partitions; partition += 1)
    for (const { id, payload } of numbered(partition, each))
      await world.send(topic, { id, partition, payload: { ...payload, pad } });
  const worker = testWorker(world, { topic, numbered: true, handlerMs: 20, tellsMemory: true }, [
    '--max-old-space-size=96',
  ]);
  await world.untilAtEnd(topic, 120_000);
  await expectOnceInOrder(world, partitions, each);
  expect(worker.isRunning).toBe(true);
  expect(worker.peak.buffered).toBeGreaterThan(0);
  expect(worker.peak.buffers / 2 ** 20).toBeLessThan(160); // of 200 MB
}, 240_000);

test('F14 SIGTERM during a handler of three sessions: it ends, its offset is committed, and nothing comes again', async () => {
  const world = await testWorld();
  const topic = await world.topic();
  await world.send(topic, { id: 'a' }, { id: 'b' });
  const first = testWorker(world, { topic, handlerMs: 3 * SESSION });
  await until(() => first.calls.length === 1, { what: 'the handler to run', timeoutMs: 20_000 });
  first.signal('SIGTERM');
  await first.untilEnded();
  expect(await world.effects()).toEqual(['a']);
  expect(await world.committed(topic)).toBe(1n);
  const second = testWorker(world, { topic });
  await world.untilCommitted(topic, 2);
  expect(second.calls).toEqual(['b']);
  expect(second.offsetsOf('duplicate')).toEqual([]);
});

test('B28 a handler that hangs past its timeout and ten seconds more takes liveness down, and its end brings it back', async () => {
  const world = await testWorld();
  const topic = await world.topic();
  const gate = new Gate();
  onTestFinished(() => gate.open());
  const service = await testService(world, {
    controllers: [eventHandler(topic, () => gate.passed)],
    options: { timeout: 300, retry: { attempts: Infinity, delay: '1h', jitter: 'none', maxDelay: '1h' } },
  });
  await world.send(topic, { id: 'a' });
  await until(() => service.named('failed').length > 0, { what: 'the timeout' });
  const since = performance.now();
  expect(service.server.health().live).toBe(true);
  await until(() => !service.server.health().live, { what: 'liveness to go', timeoutMs: 20_000 });
  expect(performance.now() - since).toBeGreaterThan(8000);
  expect(service.server.health().reasons).toMatchObject([{ code: 'HANDLER_TIMEOUT' }, { code: 'HANDLER_RETRYING' }]);
  gate.open();
  await until(() => service.server.health().live, { what: 'liveness to come back' });
});

test('B28 partitions that all wait for their next try are ready and live, and say so', async () => {
  const world = await testWorld();
  const topic = await world.topic(3);
  const service = await testService(world, {
    controllers: [
      eventHandler<TestEvent>(topic, () => {
        throw new Error('not yet');
      }),
    ],
    options: { retry: { attempts: Infinity, delay: '1h', maxDelay: '1h', jitter: 'none' } },
  });
  await world.send(topic, ...[0, 1, 2].map((partition) => ({ id: `e${partition}`, partition })));
  await until(() => service.server.health().reasons.length === 3, { what: 'all to wait' });
  const { live, ready, reasons, partitions } = service.server.health();
  expect({ live, ready }).toEqual({ live: true, ready: true });
  expect(new Set(reasons.map(({ code }) => code))).toEqual(new Set(['HANDLER_RETRYING']));
  expect(partitions.map(({ state }) => state)).toEqual(['retrying', 'retrying', 'retrying']);
});
