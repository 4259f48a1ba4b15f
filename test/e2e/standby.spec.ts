import { afterAll, beforeAll, expect, onTestFinished, test } from 'vitest';
import { EventPublisher, TransactionScope, type IdempotencyOptions } from 'nestjs-kafka-idempotency';
import { until } from 'nestjs-kafka-idempotency/testing';
import { Topics } from '../integration/kafka/topics.js';
import { cancelWait, waitForStandby, waitNoMore } from '../integration/transaction/standby.js';
import { startEmbeddedPostgres, type EmbeddedPostgresServer } from '../services/embedded-postgres.js';
import { eventHandler, publishingHandler, writeEffect } from './kit/handlers.js';
import { testService, testWorld } from './kit/in-test.js';
import { KeptLog } from './kit/log.js';

// Its commits wait for a standby that there is not.
let postgres: EmbeddedPostgresServer;
beforeAll(async () => {
  postgres = await startEmbeddedPostgres();
});
afterAll(() => postgres.close());

const BARRIER = 'SELECT set_config';

test.each([
  ['in a transaction of its own', { messagesPerTransaction: 1 }],
  ['in a shared one', { messagesPerTransaction: 10 }],
])(
  'F24 an event whose commit the synchronous standby has not got, for its wait was cancelled, is told, and its offset waits for the standby: %s',
  async (_how, options) => {
    const world = await testWorld({ databaseUrl: postgres.databaseUrl });
    const topic = await world.topic();
    const log = new KeptLog();
    const service = await testService(world, {
      controllers: [eventHandler(topic, ({ id }, tools) => writeEffect(tools, id))],
      options: { ...options, outbox: { relay: false } },
      logger: log,
    });
    await world.send(topic, { id: 'e0' });
    await world.untilCommitted(topic, 1);

    await waitForStandby(world.db);
    onTestFinished(() => waitNoMore(world.db));
    await world.send(topic, { id: 'e1' });
    await cancelWait(world.db, 'COMMIT');
    await until(() => service.named('processed').length === 2, { what: 'the event to be processed' });
    expect(service.named('unreplicated')).toHaveLength(1);
    expect(log.with('COMMIT_UNREPLICATED')).toHaveLength(1);
    await cancelWait(world.db, BARRIER);
    await cancelWait(world.db, BARRIER); // the next one has come
    expect(await world.effects()).toEqual(['e0', 'e1']);
    expect(await world.committed(topic)).toBe(1n);

    await waitNoMore(world.db);
    await world.untilCommitted(topic, 2);
    expect(await world.effects()).toEqual(['e0', 'e1']);
  },
);

test('F24 nothing of the outbox is sent that the synchronous standby has not got', async () => {
  const world = await testWorld({ databaseUrl: postgres.databaseUrl });
  const topic = await world.topic();
  const service = await testService(world, { controllers: [], options: {} });
  const publisher = service.app.get(EventPublisher);
  const scope = service.app.get(TransactionScope);
  const ends = async () => (await world.admin.fetchTopicOffsets(topic)).map(({ high }) => high);

  const publish = (value: string) => scope.run(() => publisher.publish(topic, value));
  const untilSent = (count: number) =>
    until(async () => (await ends())[0] === String(count), { what: `${count} messages in the topic` });

  await publish('x');
  await untilSent(1);
  await waitForStandby(world.db);
  onTestFinished(() => waitNoMore(world.db));
  const published = publish('y');
  await cancelWait(world.db, 'COMMIT');
  await published;
  await cancelWait(world.db, BARRIER);
  await cancelWait(world.db, BARRIER);
  expect(await ends()).toEqual(['1']);

  await waitNoMore(world.db);
  await untilSent(2);
});

test.each<[string, Partial<IdempotencyOptions>]>([
  ['each commit for itself', {}],
  ['in a window', { durability: 'window' }],
])(
  'F24 when a synchronous standby takes the place of the server that died every event has its effect once, and each published one is sent once, in order: %s',
  async (_how, options) => {
    const own = await startEmbeddedPostgres();
    onTestFinished(() => own.close());
    const world = await testWorld({ databaseUrl: own.databaseUrl });
    const [topic, out] = [await world.topic(), await world.topic()];
    const service = await testService(world, { controllers: [publishingHandler(topic, out)], options });
    const standby = await own.addStandby();
    const ids = Array.from({ length: 400 }, (_, at) => `e${at}`);
    await world.send(topic, ...ids.map((id) => ({ id })));
    await until(() => service.named('processed').length >= 100, { what: 'events to be processed', intervalMs: 2 });
    await own.failOver(standby);
    await world.untilCommitted(topic, ids.length);
    expect(await world.effects()).toEqual(ids);
    const left = () => world.db.query<unknown[]>('SELECT 1 FROM outbox_messages');
    await until(async () => (await left()).length === 0, { what: 'the outbox to be empty', timeoutMs: 20_000 });
    const messages = await (await Topics.open(world.brokers)).read(out);
    const byId = new Map(messages.map(({ message, value }) => [String(message.headers?.['event-id']), value]));
    expect([...byId.values()]).toEqual(ids); // what is sent again has its id
  },
);
