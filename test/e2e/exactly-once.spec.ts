import { setTimeout as sleep } from 'node:timers/promises';
import { expect, test } from 'vitest';
import { until } from 'nestjs-kafka-idempotency/testing';
import { committedRecords } from './kit/committed-records.js';
import { exactlyOnceHandler, type TestEvent } from './kit/handlers.js';
import type { Failpoint } from './kit/child.js';
import { testService, testWorker, testWorld } from './kit/in-test.js';
import { seeded } from './kit/seeded.js';
import type { World } from './kit/world.js';

/** So many events, and their ids. */
async function sendNumbered(world: World, topic: string, count: number): Promise<string[]> {
  const ids = Array.from({ length: count }, (_, at) => `e${at}`);
  await world.send(topic, ...ids.map((id) => ({ id, key: id })));
  return ids;
}

test('what is published in an exactly-once handler and the offset of its record are committed together, many records in one transaction', async () => {
  const world = await testWorld();
  const [from, to] = [await world.topic(), await world.topic(1, 'out')];
  const ids = await sendNumbered(world, from, 300);
  const service = await testService(world, {
    controllers: [
      exactlyOnceHandler(from, async ({ id }, publisher) => {
        await publisher.publish(to, { id: `${id} first` }, { key: id });
        await publisher.publish(to, { id: `${id} second` }, { key: id });
      }),
    ],
  });
  await world.untilCommitted(from, 300);
  const records = await committedRecords(world, to);
  expect(records.map(({ value }) => (JSON.parse(value!) as TestEvent).id)).toEqual(
    ids.flatMap((id) => [`${id} first`, `${id} second`]),
  );
  expect(new Set(records.map(({ id }) => id)).size).toBe(600);
  expect(service.named('processed')).toHaveLength(300);
  expect(service.named('committed').length).toBeLessThan(20);
});

test('F53 processes killed at every point of their transactions: who reads committed finds the output of 20,000 events once each, in order', async () => {
  const world = await testWorld();
  const [from, to] = [await world.topic(4), await world.topic(2, 'out')];
  const random = seeded(53);
  const sent: string[] = [];
  const sendSome = async () => {
    const ids = Array.from({ length: 1_000 }, (_, at) => `e${sent.length + at}`);
    await world.send(from, ...ids.map((id) => ({ id, key: `k${Number(id.slice(1)) % 97}` })));
    sent.push(...ids);
  };
  const live = (failpoint?: Failpoint) =>
    testWorker(world, { topic: from, forwardTo: to, ...(failpoint === undefined ? {} : { failpoint }) });
  const workers = [live(), live()];
  for (let kill = 0; kill < 20; kill += 1) {
    await sendSome();
    const at = kill % workers.length;
    // Half of them at any time, and half with all of a transaction sent and its end not.
    if (kill % 4 < 2) await sleep(300 + random() * 1_500);
    else {
      await workers[at]!.kill();
      workers[at] = live({ at: 'committing', nth: 3 + Math.floor(random() * 6) });
      await until(() => !workers[at]!.isRunning, { what: 'its death between send and end', timeoutMs: 30_000 });
    }
    await workers[at]!.kill();
    workers[at] = live();
  }
  await world.untilAtEnd(from, 60_000);
  expect(await world.db.query('SELECT record_offset, reason FROM parked_events')).toEqual([]);
  const records = await committedRecords(world, to);
  const found = records.map(({ value }) => (JSON.parse(value!) as TestEvent).id);
  expect(found.length, 'doubled or missing').toBe(20_000);
  expect(new Set(found).size).toBe(20_000);
  const last = new Map<string, number>();
  for (const { key, value } of records) {
    const number = Number((JSON.parse(value!) as TestEvent).id.slice(1));
    expect(number, `the order of ${key}`).toBeGreaterThan(last.get(key!) ?? -1);
    last.set(key!, number);
  }
}, 240_000);
