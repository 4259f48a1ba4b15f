import { afterAll, beforeAll, expect, test } from 'vitest';
import { IdempotencyHealth, type HealthReport } from 'nestjs-kafka-idempotency';
import { until } from 'nestjs-kafka-idempotency/testing';
import { startEmbeddedPostgres, type EmbeddedPostgresServer } from '../services/embedded-postgres.js';
import { eventHandler, writeEffect } from './kit/handlers.js';
import { testProxy, testService, testWorld } from './kit/in-test.js';
import { parkedRows } from './kit/parked.js';
import type { RunningService } from './kit/service.js';
import type { World } from './kit/world.js';

// These tests take the database away in every way, so it is their own.
let postgres: EmbeddedPostgresServer;
beforeAll(async () => {
  postgres = await startEmbeddedPostgres({ settings: { max_connections: 40 } });
});
afterAll(() => postgres.close());

const THREE = { attempts: 3, delay: 10, factor: 1, jitter: 'none' } as const;
const healthOf = (service: RunningService): Promise<HealthReport> => service.app.get(IdempotencyHealth).check();
const ids = (count: number, from = 0) => Array.from({ length: count }, (_, at) => ({ id: `e${from + at}` }));

/** A service whose record would be parked after three attempts, had they counted; `databaseUrl`: the way to the database. */
async function serviceOn(world: World, topic: string, databaseUrl = world.databaseUrl, extra: Record<string, unknown> = {}) {
  return testService(world, {
    databaseUrl,
    options: { retry: THREE, timeout: '2s' },
    typeOrm: { extra: { connectionTimeoutMillis: 1000, ...extra } },
    controllers: [eventHandler(topic, ({ id }, tools) => writeEffect(tools, id))],
  });
}

async function expectOutage(service: RunningService): Promise<void> {
  await until(() => service.named('outage').length > 0, { what: 'the outage', timeoutMs: 20_000 });
  expect(await healthOf(service)).toMatchObject({ live: true, ready: false, reasons: [{ code: 'DATABASE_UNAVAILABLE' }] });
}

async function expectAllOnce(world: World, service: RunningService, count: number): Promise<void> {
  expect((await world.effects()).sort()).toEqual(ids(count).map(({ id }) => id).sort());
  expect(await world.processed()).toHaveLength(count);
  expect(await parkedRows(world)).toEqual([]);
  expect(service.named('recovered')).toHaveLength(service.named('outage').length);
  expect(await healthOf(service)).toMatchObject({ live: true, ready: true, reasons: [] });
}

test('F19 B11 B28 a database that is away: everything pauses, one record a second probes, and nothing of the backlog is parked', async () => {
  const world = await testWorld({ databaseUrl: postgres.databaseUrl });
  const topic = await world.topic(3);
  const service = await serviceOn(world, topic);
  await world.send(topic, { id: 'e0', partition: 0 });
  await world.untilCommitted(topic, 1, 0);
  await postgres.stop('immediate');
  await world.send(topic, ...ids(30, 1).map(({ id }, at) => ({ id, partition: at % 3 })));
  await expectOutage(service);
  const before = service.named('received').length;
  const since = performance.now();
  await until(() => service.named('received').length >= before + 4, { what: 'four probes', timeoutMs: 20_000 });
  expect(performance.now() - since).toBeGreaterThan(2500); // one each second, over all partitions
  expect((await healthOf(service)).partitions.map(({ state }) => state)).toEqual(['outage', 'outage', 'outage']);
  await postgres.start();
  const back = performance.now();
  await world.untilEffects(31);
  expect(performance.now() - back).toBeLessThan(5000);
  await until(() => service.named('recovered').length > 0, { what: 'the end of the outage' });
  await expectAllOnce(world, service, 31);
});

test('F25 a read-only primary is waited for', async () => {
  const world = await testWorld({ databaseUrl: postgres.databaseUrl });
  const topic = await world.topic();
  const service = await serviceOn(world, topic);
  await world.send(topic, { id: 'e0' });
  await world.untilCommitted(topic, 1);
  const readOnly = async (value: 'on' | 'off') => {
    await world.db.query(`ALTER SYSTEM SET default_transaction_read_only = ${value}`);
    await world.db.query('SELECT pg_reload_conf()');
  };
  await readOnly('on');
  await until(async () => (await world.db.query<{ on: string }[]>('SHOW default_transaction_read_only'))[0]?.['default_transaction_read_only' as never] === 'on', { what: 'read-only' });
  await world.send(topic, ...ids(5, 1));
  await expectOutage(service);
  expect(service.named('failed').at(-1)?.error).toMatchObject({ code: 'DATABASE_UNAVAILABLE', cause: { code: '25006' } });
  await world.db.query('SET default_transaction_read_only = off');
  await readOnly('off');
  await world.untilCommitted(topic, 6);
  await expectAllOnce(world, service, 6);
});

test('F26 a full disk is waited for', async () => {
  const world = await testWorld({ databaseUrl: postgres.databaseUrl });
  const topic = await world.topic();
  const proxy = await testProxy(world);
  const service = await serviceOn(world, topic, proxy.url);
  await world.send(topic, { id: 'e0' });
  await world.untilCommitted(topic, 1);
  const full = proxy.answerWithError('53100', { matching: /effects/ });
  await world.send(topic, ...ids(5, 1));
  await expectOutage(service);
  expect(await world.committed(topic)).toBe(1n);
  full.stop();
  await world.untilCommitted(topic, 6);
  await expectAllOnce(world, service, 6);
});
