import { expect, onTestFinished, test } from 'vitest';
import { EventPublisher, TransactionScope } from 'nestjs-kafka-idempotency';
import { until } from 'nestjs-kafka-idempotency/testing';
import { Topics } from '../integration/kafka/topics.js';
import { startEmbeddedKafka } from '../services/embedded-kafka.js';
import { testService, testWorld } from './kit/in-test.js';
import type { World } from './kit/world.js';

const KEYS = 30;
/** Published in one transaction. */
const AT_ONCE = 20;
const BACKLOG = 1500;

interface Published {
  readonly id: string;
  readonly key: string;
}

test('F09 each broker of three is killed while the relay sends under load: every row it has deleted is in the topic, and of each key the first copies are in order', async () => {
  const kafka = await startEmbeddedKafka({ brokers: 3 });
  onTestFinished(() => kafka.close());
  const world = await testWorld({ brokers: kafka.brokers });
  const topic = await world.topic(6, '', { replicas: 3, config: { 'min.insync.replicas': '2' } });
  const service = await testService(world, { controllers: [], options: { outbox: { batch: 100 } } });
  const relayed = () => service.named('relayed').reduce((sum, { messages }) => sum + messages, 0);
  const topics = await Topics.open(kafka.brokers);

  const published: Published[] = [];
  const load = { on: true };
  const publishing = (async () => {
    const [scope, publisher] = [service.app.get(TransactionScope), service.app.get(EventPublisher)];
    while (load.on) {
      const next = Array.from({ length: AT_ONCE }, (_, at) => nameOf(published.length + at));
      await scope.run(async () => {
        for (const { id, key } of next) await publisher.publish(topic, 'x'.repeat(250), { id, key });
      });
      published.push(...next);
      await until(() => published.length - relayed() < BACKLOG, { what: 'the relay to go on', timeoutMs: 60_000 });
    }
  })();
  onTestFinished(async () => {
    load.on = false;
    await publishing;
  });

  for (const node of kafka.nodes) {
    const before = relayed();
    await until(() => relayed() > before + 500, { what: 'the relay to be at work', timeoutMs: 30_000 });
    await node.kill();
    const atKill = relayed();
    await until(() => relayed() > atKill + 1000, { what: `the relay to go on without ${node.id}`, timeoutMs: 60_000 });
    const deleted = await deletedOf(world, [...published]);
    await node.start();
    const stored = new Set((await topics.read(topic)).map(({ message }) => String(message.headers?.['event-id'])));
    expect(deleted.filter(({ id }) => !stored.has(id))).toEqual([]);
  }
  load.on = false;
  await publishing;
  await until(async () => (await leftIn(world)).size === 0, { what: 'an empty outbox', timeoutMs: 60_000 });

  const stored = await topics.read(topic);
  const firsts = new Map(stored.map(({ message, key }) => [String(message.headers?.['event-id']), key]));
  expect(firsts.size).toBe(published.length);
  for (let key = 0; key < KEYS; key += 1) {
    const ids = (events: Iterable<Published>) =>
      [...events].filter((event) => event.key === `k${key}`).map(({ id }) => id);
    expect(ids([...firsts].map(([id, of]) => ({ id, key: of! })))).toEqual(ids(published));
  }
  expect(service.named('unsent')).toEqual([]);
}, 240_000);

function nameOf(number: number): Published {
  return { id: `e${number}`, key: `k${number % KEYS}` };
}

/** Of what was published, what the relay takes for sent. */
async function deletedOf(world: World, published: readonly Published[]): Promise<Published[]> {
  const left = await leftIn(world);
  return published.filter(({ id }) => !left.has(id));
}

async function leftIn(world: World): Promise<Set<string>> {
  const rows = await world.db.query<{ event_id: string }[]>('SELECT event_id FROM outbox_messages');
  return new Set(rows.map(({ event_id }) => event_id));
}
