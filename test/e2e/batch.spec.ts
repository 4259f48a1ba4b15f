import {
  Catch,
  Controller,
  Inject,
  ParseArrayPipe,
  UseFilters,
  UseGuards,
  UseInterceptors,
  type CallHandler,
  type CanActivate,
  type ExceptionFilter,
  type ExecutionContext,
  type NestInterceptor,
} from '@nestjs/common';
import { Ctx, KafkaContext, Payload } from '@nestjs/microservices';
import { IsInt } from 'class-validator';
import { tap, throwError, type Observable } from 'rxjs';
import { DataSource } from 'typeorm';
import { expect, onTestFinished, test } from 'vitest';
import {
  BatchContext,
  BatchItemError,
  currentDelivery,
  Idempotent,
  IdempotentBatch,
  ParkedEvents,
  Signal,
  type IdempotencyOptions,
} from 'nestjs-kafka-idempotency';
import { until } from 'nestjs-kafka-idempotency/testing';
import { batchHandler, Gate, Meeting, writeEffect, writeEffects, type TestEvent } from './kit/handlers.js';
import { testProxy, testService, testSession, testWorker, testWorld } from './kit/in-test.js';
import { KeptLog } from './kit/log.js';
import { parkedRows } from './kit/parked.js';
import { OnTopic, startService, type RunningService } from './kit/service.js';
import { claimOf, everything, ids, transactions, TWICE, withDeferredKey } from './kit/groups.js';
import { startsOnLostPartitions } from './kit/numbered.js';
import { seeded } from './kit/seeded.js';

/** Whatever comes in several fetches waits for each other; a full batch does not. */
const FULL = { maxWait: '2s' } as const;
const events = (count: number, from = 0) => ids(count, from).map((id) => ({ id }));
const idsOf = (some: readonly TestEvent[]) => some.map(({ id }) => id);

/** Calls of the batch handler that a failing one of `size` costs at most: a pair for each halving, and the attempts of the one that is found. */
const byHalves = (size: number, attempts: number) => 1 + 2 * Math.ceil(Math.log2(size)) + (attempts - 1);

const buffered = ({ server }: RunningService) =>
  server.health().partitions.reduce((sum, partition) => sum + partition.buffered, 0);

test('the handler is called once with the fresh events, in one transaction, and @Ctx() and currentDelivery() tell of those', async () => {
  const world = await testWorld();
  const topic = await world.topic();
  const calls: unknown[] = [];
  for (const id of ['e0', 'e4']) await world.db.query(claimOf(id));
  await world.send(
    topic,
    ...[...events(6), { id: 'e2' }, ...events(2, 6)].map((event) => ({
      ...event,
      key: `key of ${event.id}`,
      headers: { kind: 'test' },
    })),
  );
  const service = await testService(world, {
    controllers: [
      batchHandler(
        topic,
        async (some, tools) => {
          const { context } = tools;
          const { eventId, offset, attempt, consumer } = currentDelivery()!;
          calls.push({
            ids: idsOf(some),
            current: [eventId, offset, attempt, consumer],
            first: [context.getTopic(), context.getPartition(), context.getMessage().offset, context.getMessage().key],
            deliveries: context
              .getDeliveries()
              .map(({ eventId: id, offset: at, key, headers }) => [id, at, String(key), String(headers.get('kind'))]),
            isKafkaContext: context instanceof KafkaContext && context instanceof BatchContext,
          });
          await writeEffects(tools, some);
        },
        FULL,
      ),
    ],
  });
  await world.untilCommitted(topic, 9);
  const fresh = ['e1', 'e2', 'e3', 'e5', 'e6', 'e7'];
  const offsets = ['1', '2', '3', '5', '7', '8'];
  expect(calls).toEqual([
    {
      ids: fresh,
      current: ['e1', '1', 1, 'test'],
      first: [topic, 0, '1', 'key of e1'],
      deliveries: fresh.map((id, at) => [id, offsets[at], `key of ${id}`, 'test']),
      isKafkaContext: true,
    },
  ]);
  expect(await world.effects()).toEqual(fresh);
  expect(await transactions(world)).toBe(1);
  const offsetsOf = (name: 'received' | 'claimed' | 'handled' | 'processed' | 'duplicate') =>
    service.named(name).map(({ offset }) => offset);
  expect(offsetsOf('received')).toEqual(Array.from({ length: 9 }, (_, at) => String(at)));
  for (const name of ['claimed', 'handled', 'processed'] as const) expect(offsetsOf(name)).toEqual(offsets);
  expect(offsetsOf('duplicate')).toEqual(['0', '4', '6']);
});

test('of duplicates alone no call is made', async () => {
  const world = await testWorld();
  const topic = await world.topic();
  let calls = 0;
  for (const id of ids(3)) await world.db.query(claimOf(id));
  await world.send(topic, ...events(3));
  const service = await testService(world, { controllers: [batchHandler(topic, () => (calls += 1), FULL)] });
  await world.untilCommitted(topic, 3);
  expect(calls).toBe(0);
  expect(service.named('duplicate')).toHaveLength(3);
});

test.each([
  ['covers a duplicate waits', true],
  ['covers none does not wait', false],
])('an offset that a batch leads to and that %s for a barrier', async (_, isDuplicate) => {
  const world = await testWorld();
  const topic = await world.topic();
  const proxy = await testProxy(world);
  let barriers = 0;
  const count = (statement: string) => {
    if (statement.includes('pg_logical_emit_message')) barriers += 1;
    return false;
  };
  proxy.answerWithError(count, { code: 'XX000', message: 'never' });
  if (isDuplicate) await world.db.query(claimOf('e1'));
  await world.send(topic, ...events(3));
  await testService(world, {
    databaseUrl: proxy.url,
    controllers: [batchHandler(topic, (some, tools) => writeEffects(tools, some), FULL)],
  });
  await world.untilCommitted(topic, 3);
  expect(barriers).toBe(isDuplicate ? 1 : 0);
});

test('guards, interceptors and pipes run once for a batch, and a filter that swallows the error commits nothing', async () => {
  const world = await testWorld();
  const topic = await world.topic();
  const seen: string[] = [];
  const note = (who: string, what: unknown) => seen.push(`${who} ${(what as unknown[]).length}`);

  class Guard implements CanActivate {
    canActivate(context: ExecutionContext): boolean {
      note('guard', context.switchToRpc().getData());
      return true;
    }
  }
  class Around implements NestInterceptor {
    intercept(context: ExecutionContext, next: CallHandler): Observable<unknown> {
      note('interceptor', context.switchToRpc().getData());
      return next.handle().pipe(tap({ error: () => seen.push('error') }));
    }
  }
  class Pipe {
    transform(value: unknown): unknown {
      note('pipe', value);
      return value;
    }
  }
  @Catch()
  class Swallow implements ExceptionFilter {
    catch(): Observable<unknown> {
      seen.push('filter');
      return throwError(() => 'swallowed');
    }
  }
  let failures = 1;
  @Controller()
  class Handlers {
    constructor(@Inject(DataSource) readonly dataSource: DataSource) {}
    @OnTopic(topic)
    @UseGuards(Guard)
    @UseInterceptors(Around)
    @UseFilters(Swallow)
    @IdempotentBatch({ consumer: 'test', ...FULL })
    async handle(@Payload(Pipe) some: TestEvent[]) {
      await writeEffects(this, some);
      if (failures-- > 0) throw new Error('once');
    }
  }
  await world.send(topic, ...events(4));
  await testService(world, { controllers: [Handlers] });
  await world.untilCommitted(topic, 4);
  expect(await world.effects()).toEqual(ids(4));
  const call = (count: number) => [`guard ${count}`, `interceptor ${count}`, `pipe ${count}`];
  expect(seen).toEqual([...call(4), 'error', 'filter', ...call(2), ...call(2)]);
});

/** Where the poison shows: in the handler without a name, named, or not before COMMIT. */
test('F41 one poison among 500 that the handler does not name: found by halves, the others have their effect once and in order', async () => {
  const world = await testWorld();
  const topic = await world.topic();
  let calls = 0;
  await world.send(topic, ...events(500));
  await testService(world, {
    options: { retry: TWICE },
    controllers: [
      batchHandler(
        topic,
        async (some, tools) => {
          calls += 1;
          await writeEffects(tools, some);
          if (idsOf(some).includes('e317')) throw new Error('poison');
        },
        FULL,
      ),
    ],
  });
  await world.untilCommitted(topic, 500);
  expect(await world.effects()).toEqual(ids(500).filter((id) => id !== 'e317'));
  expect(await parkedRows(world)).toMatchObject([{ event_id: 'e317', reason: 'exhausted', attempts: 2 }]);
  expect(calls).toBeLessThanOrEqual(byHalves(500, 2));
});

test('F41 one poison among 500 that is named: four calls and its attempts', async () => {
  const world = await testWorld();
  const topic = await world.topic();
  const calls: number[] = [];
  await world.db.query(claimOf('e3')); // the index is that of the array, not of the records
  await world.send(topic, ...events(500));
  await testService(world, {
    options: { retry: TWICE },
    controllers: [
      batchHandler(
        topic,
        async (some, tools) => {
          calls.push(some.length);
          for (const [index, { id }] of some.entries()) {
            if (id === 'e317') throw new BatchItemError(index, { cause: new Error('no such account') });
            if (index === 0) await writeEffects(tools, some);
          }
        },
        FULL,
      ),
    ],
  });
  await world.untilCommitted(topic, 500);
  expect(await world.effects()).toEqual(ids(500).filter((id) => id !== 'e3' && id !== 'e317'));
  expect(await parkedRows(world)).toMatchObject([
    {
      event_id: 'e317',
      attempts: 2,
      error_code: 'BATCH_ITEM_FAILED',
      error_message: 'Item 0 of the batch failed: no such account (BATCH_ITEM_FAILED)',
    },
  ]);
  expect(calls).toEqual([499, 316, 1, 1, 182]);
});

test.each([
  ['beyond the array', 500],
  ['no index at all', Number.NaN],
])('an error that names an item %s names nothing, and the batch is divided in halves', async (_, index) => {
  const world = await testWorld();
  const topic = await world.topic();
  let calls = 0;
  await world.send(topic, ...events(16));
  await testService(world, {
    options: { retry: TWICE },
    controllers: [
      batchHandler(
        topic,
        async (some, tools) => {
          calls += 1;
          await writeEffects(tools, some);
          if (idsOf(some).includes('e5')) throw new BatchItemError(index);
        },
        FULL,
      ),
    ],
  });
  await world.untilCommitted(topic, 16);
  expect(await world.effects()).toEqual(ids(16).filter((id) => id !== 'e5'));
  expect(await parkedRows(world)).toMatchObject([{ event_id: 'e5' }]);
  expect(calls).toBeLessThanOrEqual(byHalves(16, 2));
});

test.each([
  ['there at the start', true],
  ['made later, so that COMMIT is refused', false],
])('F41 a poison among 500 that a deferred constraint refuses: %s, it is found by halves', async (_, before) => {
  const world = await testWorld();
  const topic = await world.topic();
  let calls = 0;
  if (before) await withDeferredKey(world);
  const service = await startService(world, {
    options: { retry: TWICE },
    controllers: [
      batchHandler(
        topic,
        async (some, { dataSource }) => {
          calls += 1;
          // The parents come behind the children: only a deferred check lets that pass.
          await dataSource.query(
            'INSERT INTO references_one (id, event_id) SELECT id, id FROM unnest($1::text[]) AS id',
            [idsOf(some)],
          );
          await dataSource.query('INSERT INTO one (id) SELECT id FROM unnest($1::text[]) AS id', [
            idsOf(some).filter((id) => id !== 'e317'),
          ]);
        },
        FULL,
      ),
    ],
  });
  onTestFinished(() => service.close());
  if (!before) await withDeferredKey(world);
  await world.send(topic, ...events(500));
  await world.untilCommitted(topic, 500);
  const rows = await world.db.query<{ event_id: string }[]>('SELECT event_id FROM references_one');
  expect(rows.map(({ event_id }) => event_id).sort()).toEqual(
    ids(500)
      .filter((id) => id !== 'e317')
      .sort(),
  );
  expect(await parkedRows(world)).toMatchObject([{ event_id: 'e317', attempts: 2 }]);
  expect(calls).toBeLessThanOrEqual(byHalves(500, 2));
});

test('a batch whose COMMIT is refused by a serialization failure is divided too, and nothing is parked', async () => {
  const world = await testWorld();
  const topic = await world.topic();
  await world.db.query(`CREATE TABLE trouble (left_over integer); INSERT INTO trouble VALUES (1)`);
  const service = await startService(world, {
    options: { retry: TWICE },
    controllers: [batchHandler(topic, (some, tools) => writeEffects(tools, some), FULL)],
  });
  onTestFinished(() => service.close());
  // Made after the start, so that nothing but COMMIT asks it. A sequence outlives the rollback.
  await world.db.query(`
    CREATE SEQUENCE asked;
    CREATE FUNCTION refuse_once() RETURNS trigger LANGUAGE plpgsql AS $$
      BEGIN IF nextval('asked') = 1 THEN RAISE 'not now' USING ERRCODE = '40001'; END IF; RETURN NULL; END $$;
    CREATE CONSTRAINT TRIGGER at_commit AFTER INSERT ON effects DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION refuse_once()`);
  await world.send(topic, ...events(8));
  await world.untilCommitted(topic, 8);
  expect(await world.effects()).toEqual(ids(8));
  expect(await transactions(world)).toBe(2);
  expect(await parkedRows(world)).toEqual([]);
});

test('F42 an id that comes twice in a batch runs once, for each of two consumers', async () => {
  const world = await testWorld();
  const topic = await world.topic();
  const calls: string[] = [];

  @Controller()
  class Handlers {
    constructor(@Inject(DataSource) readonly dataSource: DataSource) {}
    @OnTopic(topic)
    @IdempotentBatch({ consumer: 'one', ...FULL })
    async one(@Payload() some: TestEvent[]) {
      calls.push(`one ${idsOf(some).join('')}`);
      await writeEffects(this, some, 'one');
    }
    @OnTopic(topic)
    @IdempotentBatch({ consumer: 'two', ...FULL })
    async two(@Payload() some: TestEvent[]) {
      calls.push(`two ${idsOf(some).join('')}`);
      await writeEffects(this, some, 'two');
    }
  }
  await world.db.query(claimOf('b').replace("'test'", "'two'"));
  await world.send(topic, ...['a', 'b', 'a', 'c', 'b', 'a'].map((id) => ({ id })));
  const service = await testService(world, { controllers: [Handlers] });
  await world.untilCommitted(topic, 6);
  expect(calls).toEqual(['one abc', 'two ac']);
  expect(await world.effects('one')).toEqual(['a', 'b', 'c']);
  expect(await world.effects('two')).toEqual(['a', 'c']);
  expect(await transactions(world)).toBe(1);
  expect(
    service
      .named('duplicate')
      .map(({ offset, consumer }) => `${offset} ${consumer}`)
      .sort(),
  ).toEqual(['1 two', '2 one', '2 two', '4 one', '4 two', '5 one', '5 two']);
});

test('F42 the same ids in batches of two processes run once', async () => {
  const world = await testWorld();
  const topic = await world.topic();
  const all = ids(400);
  for (let at = 0; at < 400; at += 20) await world.send(topic, ...events(20, at));
  const groups = [0, 1].map((at) => `${world.group}-${at}`);
  const { schema, brokers, databaseUrl } = world;
  const workers = groups.map((group) =>
    testWorker({ schema, brokers, databaseUrl, group }, { topic, batch: { maxSize: 30 } }),
  );
  for (const group of groups) await world.untilCommitted(topic, 400, 0, group);
  expect((await world.effects()).sort()).toEqual([...all].sort());
  expect(workers.flatMap((worker) => worker.offsetsOf('processed'))).toHaveLength(400);
});

test('F43 a process killed in the middle of a batch leaves nothing of it, and the next one does all of it', async () => {
  const world = await testWorld();
  const topic = await world.topic();
  await world.send(topic, ...events(30));
  const plan = { topic, batch: { maxSize: 10, ...FULL } };
  const first = testWorker(world, { ...plan, failpoint: { at: 'handled', offset: '15' } });
  expect(await first.untilEnded()).toMatchObject({ signal: 'SIGKILL' });
  expect(await everything(world)).toEqual([ids(10), ids(10).map((id) => `test/${id}`)]);
  testWorker(world, plan);
  await world.untilCommitted(topic, 30);
  expect(await world.effects()).toEqual(ids(30));
});

test('F43 a process killed between the commit of a batch and its offset: what runs again is divided into duplicates and new events', async () => {
  const world = await testWorld();
  const topic = await world.topic();
  await world.send(topic, ...events(10));
  const plan = { topic, batch: { maxSize: 10, maxWait: 500 } };
  const first = testWorker(world, { ...plan, failpoint: { at: 'processed', offset: '0' } });
  expect(await first.untilEnded()).toMatchObject({ signal: 'SIGKILL' });
  expect(await world.effects()).toEqual(ids(10));
  await world.send(topic, ...events(10, 10));
  const second = testWorker(world, { topic, batch: { maxSize: 20, maxWait: 500 } });
  await world.untilCommitted(topic, 20);
  expect(second.calls).toEqual(ids(10, 10));
  expect(second.offsetsOf('duplicate')).toEqual(Array.from({ length: 10 }, (_, at) => String(at)));
  expect(await world.effects()).toEqual(ids(20));
});

test('F43 COMMIT of a batch without an answer: it runs again, and the claims find that it is done', async () => {
  const world = await testWorld();
  const topic = await world.topic();
  const proxy = await testProxy(world);
  const swallowed = proxy.swallowCommitReply();
  await world.send(topic, ...events(20));
  const service = await testService(world, {
    databaseUrl: proxy.url,
    controllers: [batchHandler(topic, (some, tools) => writeEffects(tools, some), FULL)],
  });
  await swallowed.hit;
  await world.untilCommitted(topic, 20);
  expect(await world.effects()).toEqual(ids(20));
  expect(service.named('unknown')).toHaveLength(20);
  expect(await parkedRows(world)).toEqual([]);
});

test('F43 a connection lost before COMMIT of a batch: nothing of it is there, and all of it runs again', async () => {
  const world = await testWorld();
  const topic = await world.topic();
  const proxy = await testProxy(world);
  const cut = proxy.cutBeforeCommit();
  await world.send(topic, ...events(20));
  await testService(world, {
    databaseUrl: proxy.url,
    options: { retry: TWICE },
    controllers: [batchHandler(topic, (some, tools) => writeEffects(tools, some), FULL)],
  });
  await cut.hit;
  await world.untilCommitted(topic, 20);
  expect(await world.effects()).toEqual(ids(20));
  expect(await parkedRows(world)).toEqual([]);
});

test('B51 ten records, one poison, one copy: eight effects, one parked, one skipped, and the offset passes the poison only once it is parked', async () => {
  const world = await testWorld();
  const topic = await world.topic();
  const early: string[] = [];
  await world.send(topic, ...events(10).map((event, at) => (at === 7 ? { id: 'e2' } : event)));
  const service = await testService(world, {
    options: { retry: { ...TWICE, delay: 300 } },
    controllers: [
      batchHandler(
        topic,
        async (some, tools) => {
          if ((await parkedRows(world)).length === 0 && ((await world.committed(topic)) ?? 0n) > 4n)
            early.push('early');
          await writeEffects(tools, some);
          const index = idsOf(some).indexOf('e4');
          if (index !== -1) throw new BatchItemError(index);
        },
        FULL,
      ),
    ],
  });
  await world.untilCommitted(topic, 10);
  expect(early).toEqual([]);
  expect(await world.effects()).toEqual(['e0', 'e1', 'e2', 'e3', 'e5', 'e6', 'e8', 'e9']);
  expect(await parkedRows(world)).toMatchObject([{ event_id: 'e4', offset: '4' }]);
  expect(service.named('duplicate').map(({ offset }) => offset)).toEqual(['7']);
});

test('a batch that is not full waits for more records, up to maxWait, and one that is full does not wait', async () => {
  const world = await testWorld();
  const topic = await world.topic();
  const calls: string[][] = [];
  const handler = (maxWait: string) =>
    batchHandler(topic, (some) => void calls.push(idsOf(some)), { maxSize: 3, maxWait: maxWait as '30s' });
  const first = await startService(world, { controllers: [handler('30s')] });
  onTestFinished(() => first.close());
  await world.send(topic, { id: 'e0' });
  await until(() => buffered(first) === 1, { what: 'the first to wait', timeoutMs: 30_000 });
  await world.send(topic, { id: 'e1' });
  await until(() => buffered(first) === 2, { what: 'two to wait' });
  expect(calls).toEqual([]);
  await world.send(topic, { id: 'e2' });
  await world.untilCommitted(topic, 3);
  expect(calls).toEqual([ids(3)]);
  // A shutdown does not wait for a batch to fill: what waits is left for the next one.
  await world.send(topic, { id: 'e3' });
  await until(() => buffered(first) === 1, { what: 'the fourth to wait' });
  await first.close();
  expect(calls).toEqual([ids(3)]);
  expect(await world.committed(topic)).toBe(3n);
  const second = await testService(world, { controllers: [handler('300ms')] });
  await world.untilCommitted(topic, 4);
  expect(calls).toEqual([ids(3), ['e3']]);
  expect(second.failures).toEqual([]);
});

test('a lane that is full by its bytes does not wait for more records, for none are fetched', async () => {
  const world = await testWorld();
  const topic = await world.topic();
  await world.send(topic, ...events(3));
  await testService(world, {
    options: { buffer: { bytes: 20 } },
    controllers: [batchHandler(topic, (some, tools) => writeEffects(tools, some), { maxWait: '30s' })],
  });
  await until(async () => (await world.effects()).length === 3, { what: 'the effects', timeoutMs: 15_000 });
});

test('a batch that waits for more does not hold its partition back when that goes away and comes back', async () => {
  const world = await testWorld();
  const topic = await world.topic(2);
  await world.send(topic, { id: 'e0', partition: 0 }, { id: 'e1', partition: 1 });
  const serviceOf = () =>
    testService(world, {
      controllers: [batchHandler(topic, (some, tools) => writeEffects(tools, some), { maxSize: 2, maxWait: '30s' })],
    });
  const first = await serviceOf();
  await until(() => buffered(first) === 2, { what: 'both to wait', timeoutMs: 30_000 });
  const second = await serviceOf();
  await until(() => buffered(second) === 1, { what: 'one to wait with the second', timeoutMs: 30_000 });
  await second.close();
  await until(() => buffered(first) === 2, { what: 'both to wait again', timeoutMs: 30_000 });
  expect(await world.effects()).toEqual([]);
  await world.send(topic, { id: 'e2', partition: 0 }, { id: 'e3', partition: 1 });
  // The wait of before would be over later than that.
  await until(async () => (await world.effects()).length === 4, { what: 'all effects', timeoutMs: 15_000 });
  expect((await world.effects()).sort()).toEqual(ids(4));
});

test('B29 a partition that is lost in the middle of a batch: each event has its effect once and in order', async () => {
  const world = await testWorld();
  const topic = await world.topic(2);
  await world.send(
    topic,
    ...Array.from({ length: 80 }, (_, at) => ({ id: `${at % 2}-${Math.floor(at / 2)}`, partition: at % 2 })),
  );
  const goOn = new Gate();
  const reached = new Meeting(2);
  const serviceOf = (waitsAt: readonly string[]) =>
    testService(world, {
      controllers: [
        batchHandler(
          topic,
          async (some, tools) => {
            await writeEffects(tools, some);
            if (!idsOf(some).some((id) => waitsAt.includes(id))) return;
            void reached.arrive();
            await goOn.passed;
          },
          { maxSize: 20, ...FULL },
        ),
      ],
    });
  const first = await serviceOf(['0-25', '1-25']);
  await until(() => reached.came === 2, { what: 'the middle of both batches', timeoutMs: 30_000 });
  const second = await serviceOf([]);
  await until(() => first.named('revoked').length > 0, { what: 'the loss', timeoutMs: 30_000 });
  goOn.open();
  for (const partition of [0, 1]) await world.untilCommitted(topic, 40, partition);
  expect(second.named('processed').length + second.named('duplicate').length).toBeGreaterThan(0);
  const effects = await world.effects();
  for (const partition of [0, 1])
    expect(effects.filter((id) => id.startsWith(`${partition}-`))).toEqual(
      Array.from({ length: 40 }, (_, seq) => `${partition}-${seq}`),
    );
});

test('B29 a partition that is lost between two batch handlers: the second one is not called for it', async () => {
  const world = await testWorld();
  const topic = await world.topic(2);
  const goOn = new Gate();
  const reached = new Meeting(2);
  let waits = true;

  @Controller()
  class Handlers {
    constructor(@Inject(DataSource) readonly dataSource: DataSource) {}
    @OnTopic(topic)
    @IdempotentBatch({ consumer: 'one' })
    async one(@Payload() some: TestEvent[]) {
      await writeEffects(this, some, 'one');
      if (!waits) return;
      void reached.arrive();
      await goOn.passed;
    }
    @OnTopic(topic)
    @IdempotentBatch({ consumer: 'two' })
    async two(@Payload() some: TestEvent[]) {
      await writeEffects(this, some, 'two');
    }
  }
  await world.send(topic, { id: 'e0', partition: 0 }, { id: 'e1', partition: 0 });
  await world.send(topic, { id: 'e2', partition: 1 }, { id: 'e3', partition: 1 });
  const first = await testService(world, { controllers: [Handlers] });
  await until(() => reached.came === 2, { what: 'both at the first handler', timeoutMs: 30_000 });
  waits = false;
  await testService(world, { controllers: [Handlers] });
  await until(() => first.named('revoked').length > 0, { what: 'the loss', timeoutMs: 30_000 });
  goOn.open();
  for (const partition of [0, 1]) await world.untilCommitted(topic, 2, partition);
  expect(startsOnLostPartitions(first)).toEqual([]);
  for (const consumer of ['one', 'two']) expect((await world.effects(consumer)).sort()).toEqual(ids(4));
});

test('a parked event of a batch handler comes back as an array of one', async () => {
  const world = await testWorld();
  const topic = await world.topic();
  const calls: string[][] = [];
  let isMended = false;
  await world.send(topic, ...events(5));
  const service = await testService(world, {
    options: { retry: TWICE },
    controllers: [
      batchHandler(
        topic,
        async (some, tools) => {
          calls.push(idsOf(some));
          await writeEffects(tools, some);
          if (!isMended && idsOf(some).includes('e2')) throw new BatchItemError(idsOf(some).indexOf('e2'));
        },
        FULL,
      ),
    ],
  });
  await world.untilCommitted(topic, 5);
  isMended = true;
  calls.length = 0;
  expect(await service.app.get(ParkedEvents).replay({ state: 'dead' }, { by: 'test' })).toMatchObject({ processed: 1 });
  expect(calls).toEqual([['e2']]);
  expect(await world.effects()).toEqual(['e0', 'e1', 'e3', 'e4', 'e2']);
  expect(await parkedRows(world)).toEqual([]);
});

test('a key that is parked holds its later events of the same batch, and they are not in its array', async () => {
  const world = await testWorld();
  const topic = await world.topic();
  const calls: string[][] = [];
  await world.send(topic, ...Array.from({ length: 12 }, (_, at) => ({ id: `e${at}`, key: `k${at % 3}` })));
  await testService(world, {
    options: { holdKey: true, retry: TWICE, redelivery: { rounds: 0 } },
    controllers: [
      batchHandler(
        topic,
        async (some, tools) => {
          calls.push(idsOf(some));
          await writeEffects(tools, some);
          const index = idsOf(some).indexOf('e4');
          if (index !== -1) throw new BatchItemError(index);
        },
        FULL,
      ),
    ],
  });
  await world.untilCommitted(topic, 12);
  expect(calls).toEqual([ids(12), ids(4), ['e4'], ['e4'], ['e5', 'e6'], ['e8', 'e9'], ['e11']]);
  expect((await parkedRows(world)).map(({ offset, state }) => `${offset} ${state}`)).toEqual([
    '4 dead',
    '7 held',
    '10 held',
  ]);
});

test('a record without an id and one that cannot be decoded are parked, and the others of the batch are not touched', async () => {
  const world = await testWorld();
  const topic = await world.topic();
  let calls = 0;
  await world.send(topic, ...events(5));
  await world.sendRaw(topic, { value: JSON.stringify({ id: 'nobody' }) });
  await world.send(topic, ...events(5, 5));
  await world.sendRaw(topic, { value: '{', headers: { 'event-id': 'broken' } });
  await world.send(topic, ...events(5, 10));
  await testService(world, {
    options: { retry: TWICE },
    controllers: [
      batchHandler(
        topic,
        async (some, tools) => {
          calls += 1;
          await writeEffects(tools, some);
        },
        FULL,
      ),
    ],
  });
  await world.untilCommitted(topic, 17);
  expect(await world.effects()).toEqual(ids(15));
  expect((await parkedRows(world)).map(({ offset, reason }) => `${offset} ${reason}`)).toEqual([
    '5 missing-id',
    '11 decoding',
  ]);
  expect(calls).toBe(3);
});

class OrderDto {
  id!: string;
  @IsInt() amount!: number;
}

test('ParseArrayPipe checks the events of a batch one by one: the one that it refuses is parked after one attempt', async () => {
  const world = await testWorld();
  const topic = await world.topic();
  const made: unknown[] = [];

  @Controller()
  class Handlers {
    constructor(@Inject(DataSource) readonly dataSource: DataSource) {}
    @OnTopic(topic)
    @IdempotentBatch({ consumer: 'test', ...FULL })
    async handle(@Payload(new ParseArrayPipe({ items: OrderDto })) some: OrderDto[]) {
      made.push(...some.map((one) => one instanceof OrderDto));
      await writeEffects(this, some);
    }
  }
  await world.send(topic, ...ids(8).map((id) => ({ id, payload: { amount: id === 'e5' ? 'much' : 1 } })));
  await testService(world, { options: { retry: TWICE }, controllers: [Handlers] });
  await world.untilCommitted(topic, 8);
  expect(await world.effects()).toEqual(ids(8).filter((id) => id !== 'e5'));
  expect(new Set(made)).toEqual(new Set([true]));
  expect(await parkedRows(world)).toMatchObject([
    { event_id: 'e5', reason: 'permanent', error_code: 'VALIDATION_FAILED', attempts: 1 },
  ]);
});

test('timeout is for the whole call: @Signal() aborts, and the event that hangs is found', async () => {
  const world = await testWorld();
  const topic = await world.topic();
  const aborted: boolean[] = [];

  @Controller()
  class Handlers {
    constructor(@Inject(DataSource) readonly dataSource: DataSource) {}
    @OnTopic(topic)
    @IdempotentBatch({ consumer: 'test', timeout: 500, ...FULL })
    async handle(@Payload() some: TestEvent[], @Signal() signal: AbortSignal, @Ctx() context: BatchContext) {
      await writeEffects(this, some);
      if (!idsOf(some).includes('e2')) return;
      await new Promise((resolve) => signal.addEventListener('abort', resolve));
      aborted.push(...context.getDeliveries().map((delivery) => delivery.signal.aborted));
    }
  }
  await world.send(topic, ...events(4));
  await testService(world, { options: { retry: TWICE }, controllers: [Handlers] });
  await world.untilCommitted(topic, 4);
  expect(await world.effects()).toEqual(['e0', 'e1', 'e3']);
  expect(await parkedRows(world)).toMatchObject([{ event_id: 'e2', error_code: 'HANDLER_TIMEOUT' }]);
  expect(new Set(aborted)).toEqual(new Set([true]));
});

test('while another session holds one of the claims the events come one by one, and none fails', async () => {
  const world = await testWorld();
  const topic = await world.topic();
  const calls: string[][] = [];
  const other = await testSession(world);
  await other.startTransaction();
  await other.query(claimOf('e3'));
  await world.send(topic, ...events(6));
  const service = await testService(world, {
    options: { claimTimeout: 200 },
    controllers: [
      batchHandler(
        topic,
        async (some, tools) => {
          calls.push(idsOf(some));
          await writeEffects(tools, some);
        },
        FULL,
      ),
    ],
  });
  expect(await world.untilEffects(3)).toEqual(ids(3));
  await until(() => service.named('busy').length > 0, { what: 'busy' });
  await other.rollbackTransaction();
  await world.untilCommitted(topic, 6);
  expect(calls).toEqual(ids(6).map((id) => [id]));
  expect(service.failures).toEqual([]);
});

test('an event that kills its process in a batch is found and parked, and none of its batch is blamed', async () => {
  const world = await testWorld();
  const topic = await world.topic();
  await world.send(topic, ...events(8));
  // Where records run alone nothing waits to be full.
  const plan = { topic, batch: { maxSize: 8, maxWait: '30s' }, deadly: ['e5'] } as const;
  for (let deaths = 0; deaths < 4; deaths += 1) {
    const worker = testWorker(world, plan);
    expect(await worker.untilEnded()).toMatchObject({ signal: 'SIGKILL' });
  }
  testWorker(world, plan);
  await world.untilCommitted(topic, 8);
  expect(await world.effects()).toEqual(ids(8).filter((id) => id !== 'e5'));
  expect(await parkedRows(world)).toMatchObject([{ event_id: 'e5', reason: 'process-death' }]);
});

test('beside a handler of single events the smaller number counts, which is logged, and both have each event once', async () => {
  const world = await testWorld();
  const [topic, single] = [await world.topic(), await world.topic()];
  const logger = new KeptLog();
  const calls: number[] = [];

  @Controller()
  class Handlers {
    constructor(@Inject(DataSource) readonly dataSource: DataSource) {}
    @OnTopic(topic)
    @IdempotentBatch({ consumer: 'batch', ...FULL })
    async batch(@Payload() some: TestEvent[]) {
      calls.push(some.length);
      await writeEffects(this, some, 'batch');
      const index = idsOf(some).indexOf('e3');
      if (index !== -1) throw new BatchItemError(index);
    }
    @OnTopic(topic)
    @Idempotent({ consumer: 'each', messagesPerTransaction: 10 })
    async each(@Payload() { id }: TestEvent) {
      await writeEffect(this, id, 'each');
      if (id === 'e7') throw new Error('only here');
    }
    @OnTopic(single)
    @IdempotentBatch({ consumer: 'lonely', ...FULL })
    async lonely(@Payload() some: TestEvent[]) {
      calls.push(some.length);
      await writeEffects(this, some, 'lonely');
    }
    @OnTopic(single)
    @Idempotent({ consumer: 'one by one' })
    async oneByOne(@Payload() { id }: TestEvent) {
      await writeEffect(this, id, 'one by one');
    }
  }
  await world.send(topic, ...events(10));
  await testService(world, { logger, options: { retry: TWICE }, controllers: [Handlers] });
  await world.untilCommitted(topic, 10);
  expect(await world.effects('batch')).toEqual(ids(10).filter((id) => id !== 'e3'));
  expect(await world.effects('each')).toEqual(ids(10).filter((id) => id !== 'e7'));
  expect((await parkedRows(world)).map(({ consumer, event_id }) => `${consumer} ${event_id}`)).toEqual([
    'batch e3',
    'each e7',
  ]);
  expect(Math.max(...calls)).toBeGreaterThan(1);
  expect(logger.with('messagesPerTransaction is 10, of batch (maxSize 500), each (10)')).toHaveLength(1);

  calls.length = 0;
  await world.send(single, ...events(3));
  await world.untilCommitted(single, 3);
  expect(await world.effects('lonely')).toEqual(ids(3));
  expect(await world.effects('one by one')).toEqual(ids(3));
  expect(calls).toEqual([1, 1, 1]);
  expect(logger.with('messagesPerTransaction is 1, of lonely (maxSize 500), one by one (1)')).toHaveLength(1);
});

test.each([1, 2, 3])(
  'whatever fails how often, named or not (seed %i), each event has its effect once and in the order of its key, or is parked',
  async (seed) => {
    const world = await testWorld();
    const topic = await world.topic(2);
    const random = seeded(seed);
    const failures = new Map(ids(300).map((id) => [id, random() < 0.03 ? (random() < 0.5 ? 1 : Infinity) : 0]));
    const attempts = new Map<string, number>();
    const sent = ids(300).map((id) => ({ id, partition: Number(id.slice(1)) % 2 }));
    const copies = sent.filter(() => random() < 0.1);
    await world.send(topic, ...sent.flatMap((event) => (copies.includes(event) ? [event, event] : [event])));
    await testService(world, {
      options: { retry: TWICE },
      controllers: [
        batchHandler(
          topic,
          async (some, tools) => {
            await writeEffects(tools, some);
            for (const [index, { id }] of some.entries()) {
              attempts.set(id, (attempts.get(id) ?? 0) + 1);
              if (attempts.get(id)! > failures.get(id)!) continue;
              throw random() < 0.5 ? new BatchItemError(index) : new Error('by plan');
            }
          },
          { maxSize: 2 + Math.floor(random() * 60) },
        ),
      ],
    });
    for (const partition of [0, 1]) {
      const count = [...sent, ...copies].filter((event) => event.partition === partition).length;
      await world.untilCommitted(topic, count, partition);
    }
    const good = ids(300).filter((id) => failures.get(id) !== Infinity);
    const effects = await world.effects();
    for (const parity of [0, 1])
      expect(effects.filter((id) => Number(id.slice(1)) % 2 === parity)).toEqual(
        good.filter((id) => Number(id.slice(1)) % 2 === parity),
      );
    const dead = new Set((await parkedRows(world)).map(({ event_id }) => event_id));
    expect(dead).toEqual(new Set(ids(300).filter((id) => failures.get(id) === Infinity)));
  },
);

const refused: [what: string, options: Partial<Omit<IdempotencyOptions, 'kafka'>>, told: string[]][] = [
  [
    'concurrency.keys above 1',
    { concurrency: { keys: 2 } },
    ['concurrency.keys is 2', 'test', 'Set concurrency.keys to 1'],
  ],
  [
    'a buffer that cannot hold a batch',
    { buffer: { records: 100 } },
    ['maxSize of test is 500', 'buffer.records is 100'],
  ],
];

test.each(refused)('a batch handler is refused at start-up beside %s', async (_, options, told) => {
  const world = await testWorld();
  const topic = await world.topic();
  const error: unknown = await startService(world, {
    options,
    controllers: [batchHandler(topic, () => undefined)],
  }).then(
    () => undefined,
    (thrown: unknown) => thrown,
  );
  expect(error).toMatchObject({ code: 'OPTIONS_INVALID' });
  for (const part of told) expect((error as Error).message).toContain(part);
});

test('messagesPerTransaction of the module does not count for a batch handler', async () => {
  const world = await testWorld();
  const topic = await world.topic();
  const calls: number[] = [];
  await world.send(topic, ...events(12));
  await testService(world, {
    options: { messagesPerTransaction: 5 },
    controllers: [batchHandler(topic, (some) => void calls.push(some.length), FULL)],
  });
  await world.untilCommitted(topic, 12);
  expect(calls).toEqual([12]);
});
