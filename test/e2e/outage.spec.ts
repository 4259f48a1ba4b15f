import { setTimeout as sleep } from 'node:timers/promises';
import { DataSource } from 'typeorm';
import { afterAll, beforeAll, expect, onTestFinished, test } from 'vitest';
import { IdempotencyHealth, type HealthReport } from 'nestjs-kafka-idempotency';
import { until } from 'nestjs-kafka-idempotency/testing';
import { startEmbeddedPostgres, type EmbeddedPostgresServer } from '../services/embedded-postgres.js';
import { eventHandler, writeEffect } from './kit/handlers.js';
import { testProxy, testService, testWorld } from './kit/in-test.js';
import { KeptLog } from './kit/log.js';
import { parkedRows } from './kit/parked.js';
import type { RunningService } from './kit/service.js';
import type { World } from './kit/world.js';

// These tests take the database away in every way, so it is their own.
let postgres: EmbeddedPostgresServer;
beforeAll(async () => {
  postgres = await startEmbeddedPostgres({ settings: { max_connections: 40 } });
});
afterAll(() => postgres.close());

/** Bytes of the database's answers, of which TypeORM's own start takes about 1,500. */
const IN_THE_CHECKS = 3000;
const THREE = { attempts: 3, delay: 10, factor: 1, jitter: 'none' } as const;
const healthOf = (service: RunningService): Promise<HealthReport> => service.app.get(IdempotencyHealth).check();
const ids = (count: number, from = 0) => Array.from({ length: count }, (_, at) => ({ id: `e${from + at}` }));

/** A service whose record would be parked after three attempts, had they counted; `databaseUrl`: the way to the database. */
async function serviceOn(world: World, topic: string, databaseUrl = world.databaseUrl) {
  return testService(world, {
    databaseUrl,
    options: { retry: THREE, timeout: '2s' },
    typeOrm: { applicationName: topic, extra: { connectionTimeoutMillis: 1000 } },
    controllers: [eventHandler(topic, ({ id }, tools) => writeEffect(tools, id))],
  });
}

/** Of the database: a new broker may need a moment, too. */
function told(service: RunningService, name: 'outage' | 'recovered'): unknown[] {
  return service.named(name).filter(({ code }) => code === 'DATABASE_UNAVAILABLE');
}

async function expectOutage(service: RunningService): Promise<void> {
  await until(() => told(service, 'outage').length > 0, { what: 'the outage', timeoutMs: 20_000 });
  const { live, ready, reasons } = await healthOf(service);
  expect({ live, ready }).toEqual({ live: true, ready: false });
  expect(reasons[0]).toMatchObject({ code: 'DATABASE_UNAVAILABLE' });
}

async function expectAllOnce(world: World, service: RunningService, count: number): Promise<void> {
  expect((await world.effects()).sort()).toEqual(
    ids(count)
      .map(({ id }) => id)
      .sort(),
  );
  expect(await world.processed()).toHaveLength(count);
  expect(await parkedRows(world)).toEqual([]);
  expect(told(service, 'recovered')).toHaveLength(told(service, 'outage').length);
  expect(await healthOf(service)).toMatchObject({ live: true, ready: true, reasons: [] });
}

test('a connection that is lost during the start-up checks does not end the start', async () => {
  const world = await testWorld({ databaseUrl: postgres.databaseUrl });
  const topic = await world.topic();
  const proxy = await testProxy(world);
  const log = new KeptLog();
  const cut = proxy.cutAfter(IN_THE_CHECKS);
  const service = await testService(world, {
    databaseUrl: proxy.url,
    logger: log,
    controllers: [eventHandler(topic, ({ id }, tools) => writeEffect(tools, id))],
  });
  await cut.hit;
  expect(log.with('start-up checks')).toHaveLength(1);
  await world.send(topic, { id: 'e0' });
  await world.untilEffects(1);
  expect(service.failures).toEqual([]);
});

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
  await until(() => told(service, 'recovered').length > 0, { what: 'the end of the outage' });
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
  await until(
    async () =>
      (await world.db.query<{ on: string }[]>('SHOW default_transaction_read_only'))[0]?.[
        'default_transaction_read_only' as never
      ] === 'on',
    { what: 'read-only' },
  );
  await world.send(topic, ...ids(5, 1));
  await expectOutage(service);
  expect(service.named('failed').at(-1)?.error).toMatchObject({
    code: 'DATABASE_UNAVAILABLE',
    cause: { code: '25006' },
  });
  await world.db.query('SET default_transaction_read_only = off');
  await readOnly('off');
  await world.untilCommitted(topic, 6);
  await expectAllOnce(world, service, 6);
});

test('F26 a full disk is waited for, also where only COMMIT meets it', async () => {
  const world = await testWorld({ databaseUrl: postgres.databaseUrl });
  const topic = await world.topic();
  const proxy = await testProxy(world);
  const service = await serviceOn(world, topic, proxy.url);
  await world.send(topic, { id: 'e0' });
  await world.untilCommitted(topic, 1);
  const diskFull = { code: '53100', message: 'could not extend file: No space left on device' };
  const full = proxy.answerWithError('INSERT INTO effects', diskFull, { times: 4 }); // more than the attempts
  await world.send(topic, ...ids(5, 1));
  await expectOutage(service);
  expect(await world.committed(topic)).toBe(1n);
  await until(() => full.hits === 4, { what: 'the last refusal', timeoutMs: 20_000 });
  await world.untilCommitted(topic, 6);
  await expectAllOnce(world, service, 6);

  const atCommit = proxy.answerWithError((text) => /^COMMIT/i.test(text), diskFull, { times: 4 });
  await world.send(topic, ...ids(2, 6));
  await until(() => atCommit.hits === 4, { what: 'the last refusal', timeoutMs: 20_000 });
  await world.untilCommitted(topic, 8);
  expect(told(service, 'outage')).toHaveLength(2);
  await expectAllOnce(world, service, 8);
});

test('F26 a server without a free connection is waited for', async () => {
  const world = await testWorld({ databaseUrl: postgres.databaseUrl });
  const topic = await world.topic();
  const service = await serviceOn(world, topic);
  const crowd = new DataSource({ type: 'postgres', url: postgres.databaseUrl, extra: { max: 100 } });
  await crowd.initialize();
  onTestFinished(() => (crowd.isInitialized ? crowd.destroy() : undefined));
  await takeAll(crowd);
  await world.db.query(`SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = $1`, [topic]);
  await takeAll(crowd); // those that became free
  await world.send(topic, ...ids(3));
  await expectOutage(service);
  expect(service.named('failed').at(-1)?.error).toMatchObject({ cause: { code: '53300' } });
  await crowd.destroy();
  await world.untilCommitted(topic, 3);
  await expectAllOnce(world, service, 3);
});

/** Until the server gives no more. */
async function takeAll(crowd: DataSource): Promise<void> {
  while (
    await crowd
      .createQueryRunner()
      .connect()
      .then(
        () => true,
        () => false,
      )
  );
}

test('F19 connections that are reset again and again, and then refused, park nothing', async () => {
  const world = await testWorld({ databaseUrl: postgres.databaseUrl });
  const topic = await world.topic(2);
  const proxy = await testProxy(world);
  const service = await serviceOn(world, topic, proxy.url);
  await world.send(topic, ...ids(100).map(({ id }, at) => ({ id, partition: at % 2 })));
  await until(() => service.named('processed').length >= 10, { what: 'the work to be under way' });
  proxy.refuse();
  proxy.reset();
  await expectOutage(service);
  await until(() => service.named('failed').length >= 6, { what: 'more failures than attempts', timeoutMs: 20_000 });
  expect(await parkedRows(world)).toEqual([]);
  await proxy.accept();
  await world.untilEffects(100);
  await until(() => told(service, 'recovered').length > 0, { what: 'the end of the outage' });
  await expectAllOnce(world, service, 100);
});

test('F20 a half-open connection is found by the timeout of the handler, and counts for nothing', async () => {
  const world = await testWorld({ databaseUrl: postgres.databaseUrl });
  const topic = await world.topic();
  const proxy = await testProxy(world);
  const service = await serviceOn(world, topic, proxy.url);
  await world.send(topic, { id: 'e0' });
  await world.untilCommitted(topic, 1);
  proxy.blackhole();
  await world.send(topic, ...ids(3, 1));
  await expectOutage(service);
  await until(() => service.named('failed').length >= 4, { what: 'more failures than attempts', timeoutMs: 30_000 });
  await proxy.heal();
  await world.untilCommitted(topic, 4);
  await expectAllOnce(world, service, 4);
});

test('F21 a slow network makes it slow, not wrong', async () => {
  const world = await testWorld({ databaseUrl: postgres.databaseUrl });
  const topic = await world.topic();
  const proxy = await testProxy(world);
  const service = await serviceOn(world, topic, proxy.url);
  await world.send(topic, { id: 'e0' });
  await world.untilCommitted(topic, 1);
  proxy.delay(150, 100);
  await world.send(topic, ...ids(5, 1));
  await world.untilCommitted(topic, 6);
  expect(service.named('revoked')).toEqual([]);
  expect(told(service, 'outage')).toEqual([]);
  await expectAllOnce(world, service, 6);
});

test('F19 a partner of the handler that is away is the failure of its event, and stops nobody', async () => {
  const world = await testWorld({ databaseUrl: postgres.databaseUrl });
  const topic = await world.topic();
  const away = new DataSource({
    type: 'postgres',
    url: 'postgres://nobody@127.0.0.1:1/none',
    extra: { connectionTimeoutMillis: 500 },
  });
  const service = await testService(world, {
    options: { retry: THREE },
    controllers: [
      eventHandler(topic, async ({ id }, tools) => {
        await writeEffect(tools, id);
        if (id === 'e0') await away.initialize();
      }),
    ],
  });
  await world.send(topic, ...ids(2));
  await world.untilCommitted(topic, 2);
  expect(told(service, 'outage')).toEqual([]);
  expect(await world.effects()).toEqual(['e1']);
  expect(await parkedRows(world)).toMatchObject([{ event_id: 'e0', reason: 'exhausted', attempts: 3 }]);
});

test('B47 a transaction that the server ends because the handler was idle too long is the failure of its event', async () => {
  const world = await testWorld({ databaseUrl: postgres.databaseUrl });
  const topic = await world.topic();
  let idleMs = 1500;
  const service = await testService(world, {
    options: { retry: THREE, timeout: 900 },
    typeOrm: { extra: { options: `-c search_path=${world.schema} -c idle_in_transaction_session_timeout=1000` } },
    controllers: [
      eventHandler(topic, async ({ id }, tools) => {
        await tools.dataSource.query(`SET LOCAL idle_in_transaction_session_timeout = 300`);
        await writeEffect(tools, id);
        if (id === 'e0') await sleep(idleMs);
        idleMs = 0;
        await writeEffect(tools, id, 'again');
      }),
    ],
  });
  await world.send(topic, ...ids(2));
  await world.untilCommitted(topic, 2);
  expect(service.named('failed').length).toBeGreaterThan(0);
  expect(told(service, 'outage')).toEqual([]);
  expect(await world.effects()).toEqual(['e0', 'e0', 'e1', 'e1']);
});
