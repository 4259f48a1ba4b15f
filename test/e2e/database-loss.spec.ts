import { afterAll, beforeAll, expect, onTestFinished, test } from 'vitest';
import { DataSource } from 'typeorm';
import { startEmbeddedPostgres, type EmbeddedPostgresServer } from '../services/embedded-postgres.js';
import { until } from 'nestjs-kafka-idempotency/testing';
import { eventHandler, Gate, Meeting, writeEffect, type TestEvent, type Tools } from './kit/handlers.js';
import { testService, testWorld } from './kit/in-test.js';
import type { RunningService } from './kit/service.js';
import { StillbornSessions } from './kit/stillborn-session.js';
import type { World } from './kit/world.js';

// These tests stop the server or end sessions at random, so it is their own.
let postgres: EmbeddedPostgresServer;
beforeAll(async () => {
  postgres = await startEmbeddedPostgres();
});
afterAll(() => postgres.close());

/** Slow enough that the fault finds work under way. */
async function writeSlowly({ id }: TestEvent, tools: Tools): Promise<void> {
  await writeEffect(tools, id);
  await tools.dataSource.query('SELECT pg_sleep(0.003)');
}

const ids = (count: number): { id: string }[] => Array.from({ length: count }, (_, at) => ({ id: `e${at}` }));

function poolOf(service: RunningService): { totalCount: number; idleCount: number; waitingCount: number } {
  return (service.app.get(DataSource).driver as unknown as { master: ReturnType<typeof poolOf> }).master;
}

async function expectAllOnce(world: World, service: RunningService, count: number): Promise<void> {
  expect(await world.effects()).toEqual(ids(count).map(({ id }) => id));
  expect(await world.processed()).toHaveLength(count);
  const { totalCount, idleCount, waitingCount } = poolOf(service);
  expect({ idleCount, waitingCount }).toEqual({ idleCount: totalCount, waitingCount: 0 });
}

test.each(['fast', 'immediate'] as const)(
  'F22 a PostgreSQL restart (%s) amid the work costs retries and no event',
  async (mode) => {
    const world = await testWorld({ databaseUrl: postgres.databaseUrl });
    const topic = await world.topic();
    const service = await testService(world, {
      controllers: [eventHandler(topic, writeSlowly)],
    });
    const count = 400;
    await world.send(topic, ...ids(count));
    await until(() => service.named('processed').length >= 20, { what: 'the work to be under way' });
    await postgres.restart(mode);
    await world.untilCommitted(topic, count);
    expect(service.named('failed').length + service.named('unknown').length).toBeGreaterThan(0);
    await expectAllOnce(world, service, count);
  },
);

test('B11 a database that is away for a while: the record waits in front, and the service lives on', async () => {
  const world = await testWorld({ databaseUrl: postgres.databaseUrl });
  const topic = await world.topic();
  const service = await testService(world, {
    controllers: [eventHandler(topic, ({ id }, tools) => writeEffect(tools, id))],
  });
  await world.send(topic, { id: 'e0' });
  await world.untilCommitted(topic, 1);
  await postgres.stop('immediate');
  await world.send(topic, { id: 'e1' }, { id: 'e2' });
  await until(() => service.named('failed').length >= 5, { what: 'failures while the database is away' });
  expect(new Set(service.named('failed').map(({ offset }) => offset))).toEqual(new Set(['1']));
  expect(service.named('failed').at(-1)).toMatchObject({ error: { code: 'DATABASE_UNAVAILABLE' } });
  expect(await world.committed(topic)).toBe(1n);

  await postgres.start();
  await world.untilCommitted(topic, 3);
  await expectAllOnce(world, service, 3);
});

test('B11 a connection that dies under the handler fails the attempt with its own error, and the retry has a fresh one', async () => {
  const world = await testWorld({ databaseUrl: postgres.databaseUrl });
  const topic = await world.topic();
  const [written, killed] = [new Gate(), new Gate()];
  const pids: number[] = [];
  const service = await testService(world, {
    controllers: [
      eventHandler(topic, async ({ id }, tools) => {
        const [row] = await tools.dataSource.query<{ pid: number }[]>('SELECT pg_backend_pid() AS pid');
        pids.push(row?.pid ?? 0);
        await writeEffect(tools, id);
        written.open();
        await killed.passed;
      }),
    ],
  });
  await world.send(topic, { id: 'e0' });
  await written.passed;
  await world.db.query('SELECT pg_terminate_backend($1)', [pids[0]]);
  await until(() => poolOf(service).totalCount === poolOf(service).idleCount, {
    what: 'the pool to drop the dead connection',
  });
  killed.open();
  await world.untilCommitted(topic, 1);
  expect(service.named('failed')).toMatchObject([{ error: { code: 'TRANSACTION_ABORTED', cause: { code: '57P01' } } }]);
  expect(new Set(pids).size).toBe(2);
  await expectAllOnce(world, service, 1);
});

test('B11 a session that ends in the very moment it begins fails an attempt and does not end the process', async () => {
  const world = await testWorld();
  const sessions = await StillbornSessions.open(world.databaseUrl);
  onTestFinished(() => sessions.close());
  const topic = await world.topic(2);
  const meeting = new Meeting(2); // the second needs a connection of its own
  const service = await testService(world, {
    databaseUrl: sessions.url,
    typeOrm: { extra: { idleTimeoutMillis: 50 } },
    controllers: [
      eventHandler(topic, async ({ id }, tools) => {
        if (!id.startsWith('first')) await meeting.arrive();
        await writeEffect(tools, id);
      }),
    ],
  });
  // The first record of each partition also leaves its mark, in a session of its own.
  await world.send(topic, { id: 'first', partition: 0 }, { id: 'first too', partition: 1 });
  await world.untilEffects(2);
  await until(() => poolOf(service).totalCount === 0, { what: 'the pool to be empty' });
  sessions.endNext();
  await world.send(topic, { id: 'e0', partition: 0 }, { id: 'e1', partition: 1 });
  await world.untilEffects(4);
  expect(sessions.died).toBe(1);
  expect(service.named('failed')).toHaveLength(1);
});

test('F23 sessions terminated at random, again and again: each event has its effect once', async () => {
  const world = await testWorld({ databaseUrl: postgres.databaseUrl });
  const topic = await world.topic(3);
  const service = await testService(world, {
    typeOrm: { applicationName: world.schema },
    controllers: [eventHandler(topic, writeSlowly)],
  });
  const count = 300;
  await world.send(topic, ...ids(count).map(({ id }) => ({ id, key: id })));
  let terminated = 0;
  await until(
    async () => {
      const [hit] = await world.db.query<{ done: boolean }[]>(
        `SELECT pg_terminate_backend(pid) AS done FROM pg_stat_activity WHERE application_name = $1 ORDER BY random() LIMIT 1`,
        [world.schema],
      );
      terminated += hit?.done === true ? 1 : 0;
      return (await world.effects()).length >= count;
    },
    { what: 'all effects', timeoutMs: 40_000, intervalMs: 50 },
  );
  await until(async () => (await world.processed()).length === count, { what: 'all claims' });
  expect((await world.effects()).sort()).toEqual(
    ids(count)
      .map(({ id }) => id)
      .sort(),
  );
  expect(terminated).toBeGreaterThan(5);
  expect(service.named('failed').length + service.named('unknown').length).toBeGreaterThan(5);
});
