import { expect, test } from 'vitest';
import { type ArmedFault, type PostgresProxy, until } from 'nestjs-kafka-idempotency/testing';
import { eventHandler, writeEffect } from './kit/handlers.js';
import { testProxy, testService, testSession, testWorld } from './kit/in-test.js';
import type { RunningService } from './kit/service.js';
import type { World } from './kit/world.js';

interface Scene {
  readonly world: World;
  readonly topic: string;
  readonly service: RunningService;
  readonly fault: ArmedFault;
  readonly calls: string[];
}

/** A service behind a proxy whose next COMMIT meets the fault, and two events. */
async function commitMeets(arm: (proxy: PostgresProxy) => ArmedFault): Promise<Scene> {
  const world = await testWorld();
  const proxy = await testProxy(world);
  const topic = await world.topic();
  const calls: string[] = [];
  const service = await testService(world, {
    databaseUrl: proxy.url,
    controllers: [
      eventHandler(topic, async ({ id }, tools) => {
        calls.push(id);
        await writeEffect(tools, id);
      }),
    ],
  });
  const fault = arm(proxy);
  await world.send(topic, { id: 'a' }, { id: 'b' });
  await world.untilCommitted(topic, 2);
  return { world, topic, service, fault, calls };
}

function expectNothingCounted(service: RunningService): void {
  expect(service.named('unknown')).toMatchObject([{ offset: '0', attempt: 1, error: { code: 'COMMIT_UNKNOWN' } }]);
  expect(service.failures).toEqual([]);
  expect(service.named('received').map(({ attempt }) => attempt)).toEqual([1, 1, 1]);
}

test('F05 a COMMIT that was done and whose answer is lost: the rerun finds the claim, and nothing counts as a failure', async () => {
  const { world, service, fault, calls } = await commitMeets((proxy) => proxy.swallowCommitReply());
  expect(await fault.hit).toMatchObject({ answer: 'COMMIT' });
  expect(calls).toEqual(['a', 'b']);
  expect(service.named('duplicate')).toHaveLength(1);
  expect(await world.effects()).toEqual(['a', 'b']);
  expectNothingCounted(service);
});

test('F05 a COMMIT that never arrived: the rerun does the work, and nothing counts as a failure', async () => {
  const { world, service, fault, calls } = await commitMeets((proxy) => proxy.cutBeforeCommit());
  expect(fault.hits).toBe(1);
  expect(calls).toEqual(['a', 'a', 'b']);
  expect(service.named('duplicate')).toEqual([]);
  expect(await world.effects()).toEqual(['a', 'b']);
  expectNothingCounted(service);
});

test('F05 a rerun that comes while the first COMMIT is still at work waits for it', async () => {
  const world = await testWorld();
  const proxy = await testProxy(world);
  const topic = await world.topic();
  // COMMIT of the first transaction takes as long as the other session holds the advisory lock.
  await world.db.query(`CREATE FUNCTION wait() RETURNS trigger LANGUAGE plpgsql AS $$
    BEGIN PERFORM pg_advisory_xact_lock(hashtext(TG_TABLE_SCHEMA)); RETURN NULL; END $$`);
  await world.db.query(`CREATE CONSTRAINT TRIGGER slow AFTER INSERT ON effects DEFERRABLE INITIALLY DEFERRED
    FOR EACH ROW EXECUTE FUNCTION wait()`);
  const holder = await testSession(world);
  await holder.query('SELECT pg_advisory_lock(hashtext($1))', [world.schema]);
  let calls = 0;
  const service = await testService(world, {
    databaseUrl: proxy.url,
    options: { claimTimeout: 300 },
    controllers: [
      eventHandler(topic, async ({ id }, tools) => {
        calls += 1;
        await writeEffect(tools, id);
      }),
    ],
  });
  await world.send(topic, { id: 'a' });
  await until(
    async () =>
      (await world.db.query(`SELECT 1 FROM pg_stat_activity WHERE wait_event = 'advisory' AND query = 'COMMIT'`))
        .length > 0,
    { what: 'a COMMIT at work' },
  );
  proxy.refuse(); // no request to cancel it gets through either
  proxy.reset();
  await until(() => service.named('failed').length > 0, { what: 'a rerun that gets no connection' });
  await proxy.accept();
  await until(() => service.named('busy').length > 0, { what: 'the rerun to meet the claim' });
  expect(service.named('unknown')).toHaveLength(1);
  await holder.query('SELECT pg_advisory_unlock(hashtext($1))', [world.schema]);
  await world.untilCommitted(topic, 1);
  expect(await world.effects()).toEqual(['a']);
  expect(calls).toBe(1);
});
