import { afterAll, beforeAll, expect, test } from 'vitest';
import { DataSource, EventSubscriber } from 'typeorm';
import { ParkedEvents, TransactionScope } from 'nestjs-kafka-idempotency';
import { until } from 'nestjs-kafka-idempotency/testing';
import { startEmbeddedPostgres, type EmbeddedPostgresServer } from '../services/embedded-postgres.js';
import { eventHandler, Gate, publishingHandler, writeEffect, type TestEvent, type Tools } from './kit/handlers.js';
import { testService, testSession, testWorker, testWorld } from './kit/in-test.js';
import type { RunningService } from './kit/service.js';
import type { World } from './kit/world.js';

// A server on which nothing brings an asynchronous commit to the disk but a commit that waits for it: what a crash can take, it takes.
let postgres: EmbeddedPostgresServer;
beforeAll(async () => {
  postgres = await startEmbeddedPostgres({
    settings: { wal_writer_delay: '10s', wal_writer_flush_after: '1GB', autovacuum: 'off', checkpoint_timeout: '1h' },
  });
});
afterAll(() => postgres.close());

/** No barrier by the clock. */
const NEVER = '5m';
const ids = (count: number): string[] => Array.from({ length: count }, (_, at) => `e${at}`);
const events = (count: number): TestEvent[] => ids(count).map((id) => ({ id }));

async function windowWorld(): Promise<{ world: World; topic: string }> {
  const world = await testWorld({ databaseUrl: postgres.databaseUrl });
  return { world, topic: await world.topic() };
}

/** Slow enough that the crash finds work under way. */
async function writeSlowly({ id }: TestEvent, tools: Tools): Promise<void> {
  await writeEffect(tools, id);
  await tools.dataSource.query('SELECT pg_sleep(0.002)');
}

async function expectAllOnceInOrder(world: World, count: number): Promise<void> {
  expect(await world.effects()).toEqual(ids(count));
  expect(await world.processed()).toHaveLength(count);
}

async function untilProcessed(service: RunningService, count: number): Promise<void> {
  await until(() => service.named('processed').length >= count, { what: `${count} events processed`, intervalMs: 2 });
}

test.each([
  ['each in its own transaction', { messagesPerTransaction: 1 }],
  ['in shared transactions', { messagesPerTransaction: 10 }],
])(
  'F22 a crash of the server takes acknowledged transactions of a window with it, and a service that lives on handles their events again, in order: %s',
  async (_how, options) => {
    const { world, topic } = await windowWorld();
    const service = await testService(world, {
      controllers: [eventHandler(topic, writeSlowly)],
      options: { durability: 'window', commitInterval: NEVER, ...options },
    });
    const count = 300;
    await world.send(topic, ...events(count));
    await untilProcessed(service, 100);
    await postgres.restart('immediate');
    await world.untilCommitted(topic, count);
    await expectAllOnceInOrder(world, count);
    expect(service.named('processed').length).toBeGreaterThan(count + 50); // or the crash took nothing
  },
);

test('F22 a record that is at work when the server crashes does not overtake those of the window before it', async () => {
  const { world, topic } = await windowWorld();
  const gate = new Gate();
  const service = await testService(world, {
    controllers: [
      eventHandler(topic, async ({ id }, tools) => {
        if (id === 'e3') await gate.passed; // and so the lane is not dry, which would bring a barrier
        await writeEffect(tools, id);
      }),
    ],
    options: { durability: 'window', commitInterval: NEVER },
  });
  await world.send(topic, ...events(5));
  await untilProcessed(service, 3);
  await postgres.restart('immediate');
  gate.open();
  await world.untilCommitted(topic, 5);
  await expectAllOnceInOrder(world, 5);
  expect(service.named('processed').length).toBeGreaterThan(5);
});

test.each([
  ['each in its own transaction', { messagesPerTransaction: 1 }],
  ['in shared transactions', { messagesPerTransaction: 10 }],
])(
  'F22 no offset is committed past a transaction of a window that a crash of the server can still take: %s',
  async (_how, options) => {
    const { world, topic } = await windowWorld();
    const service = await testService(world, {
      controllers: [eventHandler(topic, writeSlowly)],
      options: { durability: 'window', commitInterval: 30, ...options },
    });
    const count = 400;
    await world.send(topic, ...events(count));
    await untilProcessed(service, 100);
    await until(() => service.named('committed').length >= 4, { what: 'offsets to be committed', intervalMs: 2 });
    await postgres.restart('immediate');
    await world.untilCommitted(topic, count);
    await expectAllOnceInOrder(world, count);
  },
);

test('F22 at shutdown the last offsets are committed behind a barrier', async () => {
  const { world, topic } = await windowWorld();
  const service = await testService(world, {
    controllers: [eventHandler(topic, writeSlowly)],
    options: { durability: 'window', commitInterval: NEVER },
  });
  await world.send(topic, ...events(400));
  await untilProcessed(service, 20);
  await world.db.query('DELETE FROM running_records'); // else that is done at the end, and brings everything to the disk
  await untilProcessed(service, service.named('processed').length + 50);
  await service.close();
  const committed = Number(await world.committed(topic));
  expect(committed).toBeGreaterThanOrEqual(50);
  await postgres.restart('immediate');
  await until(() => world.db.query('SELECT 1'), { what: 'the database', timeoutMs: 10_000 });
  expect(await world.effects()).toEqual(ids(400).slice(0, committed));
});

test('F22 a duplicate of a row that another instance wrote in a window is not committed past before a barrier', async () => {
  const { world, topic } = await windowWorld();
  await world.send(topic, ...events(10));
  const first = testWorker(world, {
    topic,
    durability: 'window',
    commitIntervalMs: 300_000,
    failpoint: { at: 'processed', offset: '9' },
  });
  await first.untilEnded();
  // Another group of the same consumer: no mark of the dead process is met, whose removal would bring everything to the disk.
  const group = `${world.group}-second`;
  const second = await testService(
    { group, schema: world.schema, brokers: world.brokers, databaseUrl: world.databaseUrl },
    { controllers: [eventHandler(topic, ({ id }, tools) => writeEffect(tools, id))] },
  );
  await world.untilCommitted(topic, 10, 0, group);
  await postgres.restart('immediate');
  expect(second.named('duplicate')).toHaveLength(10);
  await until(() => world.db.query('SELECT 1'), { what: 'the database', timeoutMs: 10_000 });
  await expectAllOnceInOrder(world, 10);
});

test('F22 of two handlers of a record, the one whose window went while the other worked runs again', async () => {
  const { world, topic } = await windowWorld();
  const gate = new Gate();
  const handlers = (name: string, options: { durability: 'commit' | 'window' }, first?: Gate) =>
    eventHandler(
      topic,
      async ({ id }, tools) => {
        await writeEffect(tools, id, name);
        if (first !== undefined) await first.passed;
      },
      { consumer: name, ...options },
    );
  const service = await testService(world, {
    controllers: [handlers('one', { durability: 'window' }), handlers('two', { durability: 'commit' }, gate)],
    options: { commitInterval: NEVER },
  });
  await world.send(topic, { id: 'e0' });
  await until(() => service.named('claimed').some(({ consumer }) => consumer === 'two'), {
    what: 'the second handler',
  });
  await postgres.restart('immediate');
  gate.open();
  await world.untilCommitted(topic, 1);
  expect(await world.effects('one')).toEqual(['e0']);
  expect(await world.effects('two')).toEqual(['e0']);
});

test.each([1, 10])(
  'F22 a COMMIT that the crash took back, heard of behind it, settles nothing: messagesPerTransaction %i',
  async (messagesPerTransaction) => {
    const world = await testWorld({ databaseUrl: postgres.databaseUrl });
    const topic = await world.topic(2);
    const [committed, gate] = [new Gate(), new Gate()];
    @EventSubscriber()
    class Slow {
      async afterTransactionCommit(): Promise<void> {
        committed.open();
        await gate.passed;
      }
    }
    const service = await testService(world, {
      controllers: [eventHandler(topic, ({ id }, tools) => writeEffect(tools, id))],
      options: { durability: 'window', commitInterval: NEVER, messagesPerTransaction },
      typeOrm: { subscribers: [Slow] },
    });
    await world.send(topic, { id: 'e0', partition: 0 }, { id: 'e1', partition: 0 });
    await committed.passed;
    await postgres.restart('immediate');
    await world.send(topic, { id: 'e2', partition: 1 }); // who notices the crash
    await until(() => service.named('claimed').some(({ eventId }) => eventId === 'e2'), {
      what: 'the other partition',
    });
    gate.open();
    await Promise.all([2, 1].map((count, partition) => world.untilCommitted(topic, count, partition)));
    expect((await world.effects()).sort()).toEqual(ids(3));
  },
);

test('F22 a parked event that is redelivered is on disk at once, for others act on the absence of its row', async () => {
  const { world, topic } = await windowWorld();
  let isMended = false;
  const service = await testService(world, {
    controllers: [
      eventHandler(topic, async ({ id }, tools) => {
        if (!isMended) throw new Error('not yet');
        await writeEffect(tools, id);
      }),
    ],
    options: { durability: 'window', retry: { attempts: 1 } },
  });
  await world.send(topic, { id: 'e0' });
  await world.untilCommitted(topic, 1);
  isMended = true;
  const parked = service.app.get(ParkedEvents);
  expect(await parked.replay({ state: 'dead' }, { by: 'test' })).toMatchObject({ processed: 1 });
  await postgres.restart('immediate');
  await until(() => world.db.query('SELECT 1'), { what: 'the database', timeoutMs: 10_000 });
  expect(await world.effects()).toEqual(['e0']);
  expect(await parked.count()).toMatchObject({ dead: 0 });
});

test('F22 what was looked up in a run of duplicates is not committed past before a barrier either', async () => {
  const { world, topic } = await windowWorld();
  const other = await testSession(world);
  await other.query('SET synchronous_commit = off');
  const handle = (eventIds: string[]) =>
    other.query(
      `INSERT INTO processed_events (consumer, event_id, topic, partition, record_offset, fingerprint)
       SELECT 'test', event_id, 'elsewhere', 0, 0, 0 FROM unnest($1::text[]) AS event_id`,
      [eventIds],
    );
  const service = await testService(world, {
    controllers: [eventHandler(topic, ({ id }, tools) => writeEffect(tools, id))],
  });
  await handle(ids(2));
  await world.send(topic, ...events(2));
  await world.untilCommitted(topic, 2);
  await handle(ids(40).slice(2));
  await world.send(topic, ...events(40).slice(2));
  await world.untilCommitted(topic, 40);
  expect(service.named('received')).toHaveLength(2);
  await postgres.restart('immediate');
  await until(() => world.db.query('SELECT 1'), { what: 'the database', timeoutMs: 10_000 });
  expect(await world.processed()).toHaveLength(40);
});

test('F22 what a handler published in a window is sent once, though the server crashes between the read of the relay and its barrier, and that is seen elsewhere first', async () => {
  const world = await testWorld({ databaseUrl: postgres.databaseUrl });
  const [topic, out] = [await world.topic(), await world.topic()];
  const service = await testService(world, {
    controllers: [publishingHandler(topic, out)],
    options: { durability: 'window', commitInterval: NEVER, outbox: { lease: '10m' } },
  });
  const { hasRead, goOn } = holdBarriers(service);
  await world.send(topic, { id: 'e0' });
  await until(hasRead, { what: 'the relay to read what is not on the disk yet', intervalMs: 2 });
  await postgres.restart('immediate');
  const seesTheNewServer = () =>
    service.app
      .get(TransactionScope)
      .run(() => service.app.get(DataSource).query('SELECT 1'))
      .then(() => true);
  await until(seesTheNewServer, { what: 'a transaction on the new server' });
  goOn();
  await world.untilCommitted(topic, 1);
  expect(service.named('processed')).toHaveLength(2); // or the crash took nothing
  const isSent = async () => (await world.db.query<unknown[]>('SELECT 1 FROM outbox_messages')).length === 0;
  await until(isSent, { what: 'the outbox to be empty' });
  expect((await world.admin.fetchTopicOffsets(out)).map(({ high }) => high)).toEqual(['1']);
});

/** From now on no barrier comes to the server before `goOn()`. */
function holdBarriers({ app }: RunningService): { hasRead: () => boolean; goOn: () => void } {
  const dataSource = app.get(DataSource);
  const query = dataSource.query.bind(dataSource);
  const held = new Gate();
  let hasRead = false;
  dataSource.query = (async (sql: string, parameters?: unknown[]) => {
    if (sql.includes('pg_logical_emit_message')) await held.passed;
    const answer = await query<{ eventId?: string | null }[]>(sql, parameters);
    if (sql.includes('CROSS JOIN LATERAL') && answer[0]?.eventId != null) hasRead = true;
    return answer;
  }) as typeof dataSource.query;
  return { hasRead: () => hasRead, goOn: () => held.open() };
}
