import { Controller, UseGuards, type CanActivate, type ExecutionContext } from '@nestjs/common';
import { Payload } from '@nestjs/microservices';
import { expect, test } from 'vitest';
import { Idempotent } from 'nestjs-kafka-idempotency';
import { until } from 'nestjs-kafka-idempotency/testing';
import { eventHandler, writeEffect, type TestEvent, type Tools } from './kit/handlers.js';
import { testService, testWorld } from './kit/in-test.js';
import { parkedRows } from './kit/parked.js';
import { OnTopic } from './kit/service.js';
import type { World } from './kit/world.js';

// While records of a partition follow one another, the transaction of the next is begun behind the COMMIT of the one in front, before anybody knows how
// that ends. None of it may outlive what comes in between.

const ids = (count: number) => Array.from({ length: count }, (_, at) => ({ id: `e${at}` }));

async function openTransactions(world: World): Promise<number> {
  const rows = await world.db.query<unknown[]>(
    `SELECT 1 FROM pg_locks JOIN pg_stat_activity USING (pid)
     WHERE relation = to_regclass('processed_events') AND state LIKE 'idle in transaction%'`,
  );
  return rows.length;
}

const untilNoneIsOpen = (world: World) =>
  until(async () => (await openTransactions(world)) === 0, { what: 'no transaction to be open', timeoutMs: 2_000 });

test('a COMMIT that PostgreSQL refuses: the next record does not run before the one in front is settled', async () => {
  const world = await testWorld();
  const topic = await world.topic();
  await world.db.query('ALTER TABLE effects ADD CONSTRAINT once UNIQUE (event_id) DEFERRABLE INITIALLY DEFERRED');
  const calls: string[] = [];
  const work = async ({ id }: TestEvent, tools: Tools) => {
    calls.push(id);
    await writeEffect(tools, id);
    if (id === 'e2') await writeEffect(tools, id);
  };
  await testService(world, {
    options: { retry: { attempts: 3, delay: 5 } },
    controllers: [eventHandler(topic, work)],
  });
  await world.send(topic, ...ids(5));
  await world.untilCommitted(topic, 5);
  expect(calls).toEqual(['e0', 'e1', 'e2', 'e2', 'e2', 'e3', 'e4']);
  expect(await world.effects()).toEqual(['e0', 'e1', 'e3', 'e4']);
  expect(await parkedRows(world)).toMatchObject([{ event_id: 'e2' }]);
  await untilNoneIsOpen(world);
});

test('a guard in front that refuses leaves no transaction behind', async () => {
  const world = await testWorld();
  const topic = await world.topic();
  const refused = new Set<string>();
  class AtFirstNot implements CanActivate {
    canActivate(context: ExecutionContext): boolean {
      const { id } = context.switchToRpc().getData<TestEvent>();
      if (refused.has(id)) return true;
      refused.add(id);
      return false;
    }
  }
  const handled: string[] = [];
  @Controller()
  class Handlers {
    @OnTopic(topic)
    @UseGuards(new AtFirstNot())
    @Idempotent({ consumer: 'test' })
    handle(@Payload() { id }: TestEvent) {
      handled.push(id);
    }
  }
  // Fewer connections than records that are refused.
  await testService(world, { controllers: [Handlers], typeOrm: { poolSize: 3 }, options: { retry: { delay: 1 } } });
  await world.send(topic, ...ids(20));
  await world.untilCommitted(topic, 20);
  expect(handled).toEqual(ids(20).map(({ id }) => id));
  await untilNoneIsOpen(world);
});

test('a topic that is paused while a record is handled: nothing of the next is begun until it is resumed', async () => {
  const world = await testWorld();
  const topic = await world.topic();
  const service = await testService(world, {
    controllers: [
      eventHandler(topic, async (event: TestEvent, tools) => {
        await writeEffect(tools, event.id);
        if (event.id === 'e3') service.server.pause(topic);
      }),
    ],
  });
  await world.send(topic, ...ids(8));
  await world.untilEffects(4);
  await untilNoneIsOpen(world);
  expect(await world.effects()).toEqual(['e0', 'e1', 'e2', 'e3']);
  service.server.resume(topic);
  await world.untilCommitted(topic, 8);
  expect(await world.effects()).toEqual(ids(8).map(({ id }) => id));
});

test('an application that is closed while records follow one another leaves no transaction open', async () => {
  const world = await testWorld();
  const topic = await world.topic();
  const service = await testService(world, {
    controllers: [eventHandler(topic, ({ id }: TestEvent, tools) => writeEffect(tools, id))],
  });
  await world.send(topic, ...ids(300));
  await world.untilEffects(20);
  await service.close();
  await untilNoneIsOpen(world);
  const effects = await world.effects();
  expect(effects).toEqual(ids(effects.length).map(({ id }) => id));
  expect(await world.committed(topic)).toBe(BigInt(effects.length));
});

test('an event parked while others follow keeps the later ones of its key, though they were begun', async () => {
  const world = await testWorld();
  const topic = await world.topic();
  const handled: string[] = [];
  const work = ({ id }: TestEvent) => {
    if (id === 'e1') throw new Error('this one not');
    handled.push(id);
  };
  await testService(world, {
    options: { retry: { attempts: 1 } },
    controllers: [eventHandler(topic, work, { holdKey: true })],
  });
  await world.send(topic, ...ids(6).map(({ id }, at) => ({ id, key: at % 2 === 1 ? 'held' : 'free' })));
  await world.untilCommitted(topic, 6);
  expect(handled).toEqual(['e0', 'e2', 'e4']);
  expect(await parkedRows(world)).toMatchObject([{ event_id: 'e1' }, { event_id: 'e3' }, { event_id: 'e5' }]);
  await untilNoneIsOpen(world);
});
