import { RpcException } from '@nestjs/microservices';
import { expect, test } from 'vitest';
import { until } from 'nestjs-kafka-idempotency/testing';
import { eventHandler, Meeting, writeEffect, type TestEvent, type Tools } from './kit/handlers.js';
import { testService, testSession, testWorld } from './kit/in-test.js';
import type { World } from './kit/world.js';

/** A session of somebody else that holds the claim of `test/a`, uncommitted. */
async function otherHolderOf(world: World, topic: string) {
  const other = await testSession(world);
  await other.startTransaction();
  await other.query(
    `INSERT INTO processed_events (consumer, event_id, topic, partition, record_offset, fingerprint) VALUES ('test', 'a', $1, 0, 0, 0)`,
    [topic],
  );
  return other;
}

const ends = {
  'rolls back': { calls: ['a', 'b'], duplicates: 0 },
  commits: { calls: ['b'], duplicates: 1 },
};

test.each(['rolls back', 'commits'] as const)(
  'F27 a claim held elsewhere is busy, which counts as no attempt, until the holder %s',
  async (end) => {
    const { calls, duplicates } = ends[end];
    const world = await testWorld();
    const topic = await world.topic();
    const called: string[] = [];
    const service = await testService(world, {
      options: { claimTimeout: 100 },
      controllers: [
        eventHandler(topic, async ({ id }, tools) => {
          called.push(id);
          await writeEffect(tools, id);
        }),
      ],
    });
    const other = await otherHolderOf(world, topic);
    await world.send(topic, { id: 'a' }, { id: 'b' });
    await until(() => service.named('busy').length >= 2, { what: 'two busy claims' });
    expect(await world.committed(topic)).toBe(0n);
    await (end === 'commits' ? other.commitTransaction() : other.rollbackTransaction());
    await world.untilCommitted(topic, 2);
    expect(called).toEqual(calls);
    expect(await world.effects()).toEqual(calls);
    expect(service.named('duplicate')).toHaveLength(duplicates);
    expect(service.named('busy').every(({ error }) => (error as { code?: string }).code === 'CLAIM_BUSY')).toBe(true);
    expect(service.failures).toEqual([]);
    expect(service.named('received').every(({ attempt }) => attempt === 1)).toBe(true);
  },
);

test('F27 a lock timeout of the handler itself is its failure, not a busy claim', async () => {
  const world = await testWorld();
  const topic = await world.topic();
  await world.db.query(`CREATE TABLE accounts (id integer PRIMARY KEY, balance integer NOT NULL)`);
  await world.db.query(`INSERT INTO accounts VALUES (1, 0)`);
  const other = await testSession(world);
  await other.startTransaction();
  await other.query('UPDATE accounts SET balance = 1');
  const service = await testService(world, {
    controllers: [
      eventHandler(topic, async ({ id }, tools) => {
        await tools.dataSource.query(`SET LOCAL lock_timeout = '100ms'`);
        await tools.dataSource.query('UPDATE accounts SET balance = balance + 1');
        await writeEffect(tools, id);
      }),
    ],
  });
  await world.send(topic, { id: 'a' });
  await until(() => service.named('failed').length > 0, { what: 'the failure' });
  expect(service.named('failed')[0]?.error).toMatchObject({ code: '55P03' });
  expect(service.named('busy')).toEqual([]);
  await other.rollbackTransaction();
  await world.untilCommitted(topic, 1);
  expect(await world.effects()).toEqual(['a']);
});

type Transfer = TestEvent & { from: number; to: number };

/** Two accounts, and two events in two partitions whose handlers meet between their first and their second statement. */
async function twoAtOnce(
  work: (event: Transfer, tools: Tools, meet: () => Promise<void>) => Promise<void>,
  isolation: 'READ COMMITTED' | 'REPEATABLE READ' | 'SERIALIZABLE' = 'READ COMMITTED',
) {
  const world = await testWorld();
  const topic = await world.topic(2);
  await world.db.query(`CREATE TABLE accounts (id integer PRIMARY KEY, balance integer NOT NULL)`);
  await world.db.query(`INSERT INTO accounts VALUES (1, 0), (2, 0)`);
  const meeting = new Meeting(2);
  const calls: string[] = [];
  const service = await testService(world, {
    controllers: [
      eventHandler<Transfer>(
        topic,
        async (event, tools) => {
          calls.push(event.id);
          await work(event, tools, () => meeting.arrive());
          await writeEffect(tools, event.id);
        },
        { isolation },
      ),
    ],
  });
  await world.send(
    topic,
    { id: 'a', partition: 0, payload: { from: 1, to: 2 } },
    { id: 'b', partition: 1, payload: { from: 2, to: 1 } },
  );
  await world.untilCommitted(topic, 1, 0);
  await world.untilCommitted(topic, 1, 1);
  expect((await world.effects()).sort()).toEqual(['a', 'b']);
  expect(calls).toHaveLength(3);
  return { world, service };
}

const add = (id: number) => `UPDATE accounts SET balance = balance + 1 WHERE id = ${id}`;

test('F28 B18 the victim of a deadlock runs again in a new transaction with a new claim, uncounted', async () => {
  const { world, service } = await twoAtOnce(async ({ from, to }, { dataSource }, meet) => {
    await dataSource.query(add(from));
    await meet();
    await dataSource.query(add(to));
  });
  expect(service.named('failed')).toMatchObject([{ attempt: 1, error: { code: '40P01' } }]);
  expect(service.named('received').every(({ attempt }) => attempt === 1)).toBe(true);
  expect(await world.db.query('SELECT balance FROM accounts')).toEqual([{ balance: 2 }, { balance: 2 }]);
});

test('B18 a deadlock is known through what the handler wraps it in', async () => {
  const { service } = await twoAtOnce(async ({ from, to }, { dataSource }, meet) => {
    try {
      await dataSource.query(add(from));
      await meet();
      await dataSource.query(add(to));
    } catch (cause) {
      throw new RpcException(new Error('the transfer failed', { cause }));
    }
  });
  expect(service.named('failed')).toHaveLength(1);
  expect(service.named('received').every(({ attempt }) => attempt === 1)).toBe(true);
});

test('B18 a deadlock is known when the handler caught it and a later statement failed', async () => {
  const { service } = await twoAtOnce(async ({ from, to }, { dataSource }, meet) => {
    await dataSource.query(add(from));
    await meet();
    await dataSource.query(add(to)).catch(() => undefined);
  });
  expect(service.named('failed')).toMatchObject([{ error: { code: 'TRANSACTION_ABORTED', cause: { code: '40P01' } } }]);
  expect(service.named('received').every(({ attempt }) => attempt === 1)).toBe(true);
});

test('F28 a lost update under REPEATABLE READ (40001) runs again, uncounted', async () => {
  const { world, service } = await twoAtOnce(async (_, { dataSource }, meet) => {
    await dataSource.query('SELECT * FROM accounts');
    await meet();
    await dataSource.query(add(1));
  }, 'REPEATABLE READ');
  expect(service.named('failed')).toMatchObject([{ attempt: 1, error: { code: '40001' } }]);
  expect(service.named('received').every(({ attempt }) => attempt === 1)).toBe(true);
  expect(await world.db.query('SELECT balance FROM accounts ORDER BY id')).toEqual([{ balance: 2 }, { balance: 0 }]);
});

test('F28 write skew under SERIALIZABLE (40001, at the latest at COMMIT) runs again, uncounted', async () => {
  const { world, service } = await twoAtOnce(async ({ from }, { dataSource }, meet) => {
    const rows = await dataSource.query<{ balance: number }[]>('SELECT balance FROM accounts');
    await meet();
    // Only one of the two may find all accounts empty.
    if (rows.every(({ balance }) => balance === 0)) await dataSource.query(add(from));
  }, 'SERIALIZABLE');
  expect(service.named('failed')).toMatchObject([{ attempt: 1, error: { code: '40001' } }]);
  expect(service.named('received').every(({ attempt }) => attempt === 1)).toBe(true);
  const [{ sum }] = (await world.db.query('SELECT sum(balance)::int AS sum FROM accounts')) as [{ sum: number }];
  expect(sum).toBe(1);
});

test('B10 handlers that need a second connection each do not starve one another: one is always free', async () => {
  const world = await testWorld();
  const topic = await world.topic(4);
  const meeting = new Meeting(3);
  await testService(world, {
    options: { concurrency: { transactions: 3 } },
    typeOrm: { applicationName: world.schema, extra: { max: 4, options: `-c search_path=${world.schema}` } },
    controllers: [
      eventHandler(topic, async ({ id }, tools) => {
        await meeting.arrive(); // three at once hold a connection of the four
        await tools.scope.escape(() => tools.dataSource.query('SELECT pg_sleep(0.05)'));
        await writeEffect(tools, id);
      }),
    ],
  });
  await world.send(topic, ...['a', 'b', 'c', 'd'].map((id, partition) => ({ id, partition })));
  await world.untilEffects(4);
  expect(meeting.came).toBe(4); // nobody had to be tried twice
  await until(
    async () => {
      const open = await world.db.query<unknown[]>(
        `SELECT 1 FROM pg_stat_activity WHERE application_name = $1 AND state <> 'idle'`,
        [world.schema],
      );
      return open.length === 0;
    },
    { what: 'no transaction left open' },
  );
});
