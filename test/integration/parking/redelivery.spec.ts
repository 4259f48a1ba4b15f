import { describe, expect, it } from 'vitest';
import type { ParkingRoom } from '#src/parking/parking-room.js';
import type { ParkedDelivery, ParkRequest, RedeliveryReport } from '#src/shared/parking.js';
import { until } from 'nestjs-kafka-idempotency/testing';
import { BACKOFF, CONSUMER, ConsumerDouble, failing, gated, record, request, useParking } from './kit.js';

const kit = useParking();
const park = async (offset: number, parts: Partial<ParkRequest> = {}, room?: ParkingRoom) =>
  (await kit.owner(0, room)).park(request(record(offset), parts));
const rowsOf = async () => (await kit.rows()).map(({ recordOffset, state }) => [recordOffset, state]);
const empty = () => until(async () => (await kit.rows()).length === 0, { what: 'no parked row' });
const keyOf = (text: string) => ({ key: Buffer.from(text) });
/** A row whose round began in a process that is gone. */
const leaseRanOut = (rounds: number) =>
  kit.dataSource.query(`UPDATE parked_events SET rounds = $1, version = version + $1, due_at = now()`, [rounds]);

/** As a worker of another instance takes it. */
const takenByAnother = () =>
  kit.dataSource.query(
    `UPDATE parked_events SET rounds = rounds + 1, version = version + 1, due_at = now() + interval '1 hour'`,
  );

describe('a scheduled event', () => {
  it('comes back when it is due, as it was, and goes with its effect', async () => {
    const consumer = new ConsumerDouble(kit.dataSource);
    await park(1);
    kit.room().start(consumer);
    await empty();
    expect(await kit.effects()).toEqual(['e1']);
    const [{ record: seen, eventId, attempt }] = consumer.seen as [ParkedDelivery];
    expect(seen).toEqual(record(1));
    expect([eventId, attempt]).toEqual(['e1', 2]);
  });

  it('is left alone before, by the clock of the database', async () => {
    const consumer = new ConsumerDouble(kit.dataSource);
    await park(1, { redelivery: { ...BACKOFF, delayMs: 3_600_000, maxDelayMs: 3_600_000, rounds: 4 } });
    await (await kit.owner()).park(request(record(2, keyOf('free'))));
    kit.room().start(consumer);
    await until(async () => (await kit.effects()).length > 0, { what: 'the due event' });
    expect(consumer.seen.map(({ eventId }) => eventId)).not.toContain('e1');
    expect(await rowsOf()).toContainEqual(['1', 'scheduled']);
  });

  it('F40: whose event was handled meanwhile is a duplicate: its row goes and the handler is not run', async () => {
    await kit.dataSource.query(
      `INSERT INTO processed_events (consumer, event_id, topic, partition, record_offset, fingerprint) VALUES ($1, 'e1', 'orders', 0, 1, 0)`,
      [CONSUMER],
    );
    await park(1);
    kit.room().start(new ConsumerDouble(kit.dataSource));
    await empty();
    expect(await kit.effects()).toEqual([]);
  });

  it('is removed behind a handler that has no transaction for it', async () => {
    await park(1);
    kit.room().start(new ConsumerDouble(kit.dataSource, () => ({ outcome: 'processed' })));
    await empty();
  });

  it('that keeps failing is tried in as many rounds as it has, and is dead then, with all of it in its history', async () => {
    let tries = 0;
    await park(1);
    kit.room().start(new ConsumerDouble(kit.dataSource, () => failing('transient', new Error(`no ${++tries}`))));
    await until(async () => (await kit.rows())[0]?.state === 'dead', { what: 'the dead row' });
    const [row] = await kit.rows();
    expect(row).toMatchObject({
      rounds: 4,
      attempts: 5,
      reason: 'exhausted',
      errorMessage: 'no 4',
      dueAt: null,
    });
    expect(row!.history.map(({ message }) => message)).toEqual(['refused', 'no 1', 'no 2', 'no 3', 'no 4']);
    expect(kit.events).toMatchObject([
      { name: 'retried', offset: '1' },
      { name: 'retried' },
      { name: 'retried' },
      { name: 'parked', state: 'dead', reason: 'exhausted', consumer: CONSUMER, topic: 'orders', eventId: 'e1' },
    ]);
    expect(kit.log).toEqual([expect.stringContaining('orders/0/1 (event e1) of billing.charge is dead')]);
  });

  it('keeps 20 entries of its history however often it fails', async () => {
    const consumer = new ConsumerDouble(kit.dataSource, () => failing('transient'));
    consumer.consumers.set(CONSUMER, {
      timeoutMs: 1000,
      retry: { ...BACKOFF, attempts: 1 },
      redelivery: { ...BACKOFF, rounds: 30 },
    });
    await park(1);
    kit.room().start(consumer);
    await until(async () => (await kit.rows())[0]?.state === 'dead', { what: 'the dead row' });
    const [row] = await kit.rows();
    expect([row!.history.length, row!.attempts]).toEqual([20, 31]);
  });

  it('that no further round can help is dead after one', async () => {
    const consumer = new ConsumerDouble(kit.dataSource, () => failing('permanent'));
    await park(1);
    kit.room().start(consumer);
    await until(async () => (await kit.rows())[0]?.state === 'dead', { what: 'the dead row' });
    expect(await kit.rows()).toMatchObject([{ rounds: 1, reason: 'permanent' }]);
    expect(consumer.seen).toHaveLength(1);
  });

  it.each([
    ['an outage', failing('infrastructure')],
    ['a busy claim', { outcome: 'busy', error: new Error('busy') }],
    ['an unknown COMMIT', { outcome: 'unknown', error: new Error('lost') }],
  ] as const)('F27: does not count a round that met %s, and comes again soon', async (_, first) => {
    let calls = 0;
    await park(1);
    kit.room().start(new ConsumerDouble(kit.dataSource, () => ((calls += 1) === 1 ? first : 'run')));
    await until(async () => (await kit.rows())[0]?.version === 3, { what: 'the round given back' });
    expect(await kit.rows()).toMatchObject([{ state: 'scheduled', rounds: 0, attempts: 1 }]);
    await empty();
    expect(await kit.effects()).toEqual(['e1']);
  });

  it('of a consumer this application does not have is left alone', async () => {
    await park(1, { consumer: 'audit' });
    await park(2);
    kit.room().start(new ConsumerDouble(kit.dataSource));
    await until(async () => (await kit.rows()).length === 1, { what: 'ours handled' });
    expect(await kit.rows()).toMatchObject([{ consumer: 'audit', version: 1 }]);
  });

  it('comes with the value a person put in its place, under its old event id', async () => {
    const consumer = new ConsumerDouble(kit.dataSource);
    const room = kit.room();
    await park(1, {}, room);
    const [row] = await kit.rows();
    await room.events.edit(row!.id, { value: Buffer.from('mended'), version: 1, by: 'ann' });
    room.start(consumer);
    await empty();
    expect(consumer.seen[0]).toMatchObject({ eventId: 'e1', record: { value: Buffer.from('mended') } });
  });
});

describe('the worker', () => {
  it('B16: two instances deliver each event once', async () => {
    const doubles = [new ConsumerDouble(kit.dataSource), new ConsumerDouble(kit.dataSource)];
    const owner = await kit.owner();
    for (let offset = 0; offset < 60; offset += 1) await owner.park(request(record(offset, keyOf(`k${offset}`))));
    for (const double of doubles) kit.room().start(double);
    await empty();
    expect((await kit.effects()).toSorted()).toEqual(Array.from({ length: 60 }, (_, n) => `e${n}`).toSorted());
    expect(doubles.reduce((sum, { seen }) => sum + seen.length, 0)).toBe(60);
  });

  it('B16: does not wait for an event that another instance is just taking, nor takes it afterwards', async () => {
    await park(1);
    await (await kit.owner()).park(request(record(2, keyOf('free'))));
    const session = await kit.own.session();
    await session.startTransaction();
    await session.query(`UPDATE parked_events SET due_at = now() + interval '1 hour' WHERE record_offset = 1`);
    kit.room().start(new ConsumerDouble(kit.dataSource));
    await until(async () => (await kit.effects()).length > 0, { what: 'the other event' });
    await session.commitTransaction();
    await (await kit.owner()).park(request(record(3, keyOf('free'))));
    await until(async () => (await kit.effects()).length > 1, { what: 'the third event' });
    expect(await kit.effects()).toEqual(['e2', 'e3']);
  });

  it('runs at most 16 events at once, of different keys, and takes the next as soon as one ends', async () => {
    const open = new Set<() => void>();
    const owner = await kit.owner();
    for (let offset = 0; offset < 20; offset += 1) await owner.park(request(record(offset, keyOf(`k${offset}`))));
    const consumer = new ConsumerDouble(
      kit.dataSource,
      () => new Promise((resolve) => void open.add(() => resolve({ outcome: 'processed' }))),
    );
    kit.room().start(consumer);
    await until(() => open.size === 16, { what: '16 at once' });
    [...open][0]!();
    await until(() => consumer.seen.length === 17, { what: 'the next one' });
    await until(
      () => {
        for (const end of open) end();
        return consumer.seen.length === 20;
      },
      { what: 'all' },
    );
    for (const end of open) end();
  });

  it('waits for the rounds that run when it stops, and takes no more', async () => {
    let end: (() => void) | undefined;
    const consumer = new ConsumerDouble(
      kit.dataSource,
      () => new Promise((resolve) => void (end = () => resolve('run'))),
    );
    const room = kit.room();
    await park(1, {}, room);
    room.start(consumer);
    await until(() => end !== undefined, { what: 'the round' });
    let stopped = false;
    const stopping = room.stop().then(() => (stopped = true));
    await park(2, {});
    expect(stopped).toBe(false);
    end!();
    await stopping;
    expect(await rowsOf()).toEqual([['2', 'scheduled']]);
    expect(await kit.effects()).toEqual(['e1']);
  });

  it('goes on after an outage of its tables, and tells of it once', async () => {
    await park(1);
    await kit.dataSource.query('ALTER TABLE parked_events RENAME TO away');
    kit.room().start(new ConsumerDouble(kit.dataSource));
    await until(() => kit.log.length > 0, { what: 'the log line' });
    await kit.dataSource.query('ALTER TABLE away RENAME TO parked_events');
    await empty();
    expect(kit.log).toEqual([expect.stringContaining('not redelivered at the moment (DATABASE_UNAVAILABLE')]);
  });

  it('writes how a round ended once the database is there again: no round is run twice for it', async () => {
    const consumer = new ConsumerDouble(kit.dataSource, async () => {
      await kit.dataSource.query('ALTER TABLE parked_events RENAME TO away');
      return failing('permanent');
    });
    await park(1);
    kit.room().start(consumer);
    await until(() => kit.log.length > 0, { what: 'the log line' });
    await kit.dataSource.query('ALTER TABLE away RENAME TO parked_events');
    await until(async () => (await kit.rows())[0]?.state === 'dead', { what: 'the dead row' });
    expect(consumer.seen).toHaveLength(1);
  });
});

describe('an event that ends the process', () => {
  it('F12: has its round counted before it runs, and comes up again when the lease is over', async () => {
    await park(1);
    await leaseRanOut(2);
    let end: (() => void) | undefined;
    kit
      .room()
      .start(
        new ConsumerDouble(
          kit.dataSource,
          () => new Promise((resolve) => void (end = () => resolve({ outcome: 'processed' }))),
        ),
      );
    await until(() => end !== undefined, { what: 'the third round' });
    expect((await kit.rows())[0]?.rounds).toBe(3);
    const [{ lease }] = (await kit.dataSource.query(
      'SELECT extract(epoch FROM due_at - now())::float8 AS lease FROM parked_events',
    )) as [{ lease: number }];
    expect(lease).toBeGreaterThan(25);
    expect(lease).toBeLessThanOrEqual(31);
    end!();
  });

  it('F12: is dead after its last round, and is not run once more', async () => {
    const consumer = new ConsumerDouble(kit.dataSource);
    await park(1);
    await leaseRanOut(4);
    kit.room().start(consumer);
    await until(async () => (await kit.rows())[0]?.state === 'dead', { what: 'the dead row' });
    expect(await kit.rows()).toMatchObject([{ reason: 'process-death', errorCode: 'PROCESS_DIED' }]);
    expect(consumer.seen).toEqual([]);
  });
});

describe('somebody who changes a row under a round', () => {
  const changes: [string, (room: ParkingRoom, id: string) => Promise<unknown>][] = [
    ['an edit', (room, id) => room.events.edit(id, { value: Buffer.from('x'), version: 2, by: 'ann' })],
    ['a discard', (room, id) => room.events.discard({ ids: [id] }, { by: 'ann', why: 'test' })],
    ['another lease', () => takenByAnother()],
  ];
  const ends: [string, (consumer: ConsumerDouble, parked: ParkedDelivery) => Promise<RedeliveryReport>][] = [
    ['the transaction that would take it away is rolled back', (consumer, parked) => consumer.handle(parked)],
    ['a failure is not written over it', () => Promise.resolve(failing('transient'))],
  ];

  it.each(changes.flatMap(([change, make]) => ends.map(([end, settle]) => [change, end, make, settle] as const)))(
    'wins: after %s, %s',
    async (_change, _end, make, settle) => {
      let changed: unknown;
      const room = kit.room();
      const consumer: ConsumerDouble = new ConsumerDouble(kit.dataSource, async (parked) => {
        await make(room, (await kit.rows())[0]!.id);
        changed = await kit.rows();
        return settle(consumer, parked);
      });
      await park(1, {}, room);
      room.start(consumer);
      await until(() => consumer.seen.length > 0, { what: 'the round' });
      await room.stop();
      expect(await kit.effects()).toEqual([]);
      expect(await kit.rows()).toEqual(changed);
    },
  );
});

describe('held events', () => {
  it('come in their order, one after the other, once the one before them is handled', async () => {
    const owner = await kit.owner();
    await owner.park(request(record(1)));
    for (const offset of [2, 3, 4, 5]) expect(await owner.gate(gated(record(offset)))).toBe('held');
    for (const room of [kit.room(), kit.room()]) room.start(new ConsumerDouble(kit.dataSource));
    await empty();
    expect(await kit.effects()).toEqual(['e1', 'e2', 'e3', 'e4', 'e5']);
  });

  it('wait behind a dead one and come after it is discarded', async () => {
    const room = kit.room();
    const owner = await kit.owner(0, room);
    await owner.park(request(record(1), { reason: 'permanent' }));
    for (const offset of [2, 3]) await owner.gate(gated(record(offset)));
    await owner.park(request(record(9, keyOf('free'))));
    room.start(new ConsumerDouble(kit.dataSource));
    await until(async () => (await kit.effects()).length === 1, { what: 'the event of another key' });
    expect(await kit.effects()).toEqual(['e9']);
    await room.events.discard({ eventId: 'e1' }, { by: 'ann', why: 'test' });
    await until(async () => (await kit.rows()).length === 1, { what: 'the held ones handled' });
    expect(await kit.effects()).toEqual(['e9', 'e2', 'e3']);
  });

  it('that fail have rounds of their own', async () => {
    const room = kit.room();
    const owner = await kit.owner(0, room);
    await owner.park(request(record(1)));
    await owner.gate(gated(record(2)));
    room.start(new ConsumerDouble(kit.dataSource, ({ eventId }) => (eventId === 'e2' ? failing('transient') : 'run')));
    await until(async () => (await kit.rows())[0]?.state === 'dead', { what: 'the dead row' });
    expect(await kit.rows()).toMatchObject([{ eventId: 'e2', rounds: 4, attempts: 4, reason: 'exhausted' }]);
  });

  it('left behind by a crash between a commit and what follows it come all the same', async () => {
    const owner = await kit.owner();
    await owner.park(request(record(1)));
    await owner.gate(gated(record(2)));
    await kit.dataSource.query('DELETE FROM parked_events WHERE record_offset = 1');
    expect(await rowsOf()).toEqual([['2', 'held']]);
    kit.room({ tidyMs: 50 }).start(new ConsumerDouble(kit.dataSource));
    await empty();
    expect(await kit.effects()).toEqual(['e2']);
  });

  it('a lower row of a key that is not due keeps a higher one that is from running', async () => {
    const later = { ...BACKOFF, delayMs: 3_600_000, maxDelayMs: 3_600_000, rounds: 4 };
    await park(1, { redelivery: later });
    await park(2);
    await (await kit.owner()).park(request(record(3, keyOf('free'))));
    const consumer = new ConsumerDouble(kit.dataSource);
    kit.room().start(consumer);
    await until(async () => (await kit.effects()).length > 0, { what: 'the event of another key' });
    expect(consumer.seen.map(({ eventId }) => eventId)).toEqual(['e3']);
  });
});

describe('the dead letter of a redelivered event', () => {
  const lettered = () => kit.room({ deadLetters: { publisher: kit.letters, stack: false } });

  it('B38: goes out once it is dead, with the rounds it had, before its row says so', async () => {
    const room = lettered();
    await park(1, {}, room);
    let stateThen: string | undefined;
    kit.letters.answer = async () => {
      stateThen = (await kit.rows())[0]?.state;
      return 'sent' as const;
    };
    room.start(new ConsumerDouble(kit.dataSource, () => failing('transient')));
    await until(async () => (await kit.rows())[0]?.state === 'dead', { what: 'the dead row' });
    expect(stateThen).toBe('scheduled');
    expect(kit.letters.letters).toHaveLength(1);
    const headers = new Map(kit.letters.letters[0]!.headers.map(([name, value]) => [name, value?.toString()]));
    expect([headers.get('dead-letter-rounds'), headers.get('dead-letter-attempts')]).toEqual(['4', '5']);
    expect(kit.letters.letters[0]!.value).toEqual(record(1).value);
  });

  it('B38: is tried again until it is acknowledged, without running the handler for it', async () => {
    let refused = 0;
    kit.letters.answer = () => {
      if ((refused += 1) < 3) throw new Error('UNKNOWN_TOPIC_OR_PARTITION');
      return 'sent';
    };
    const consumer = new ConsumerDouble(kit.dataSource, () => failing('permanent'));
    const room = lettered();
    await park(1, {}, room);
    room.start(consumer);
    await until(async () => (await kit.rows())[0]?.state === 'dead', { what: 'the dead row' });
    expect([kit.letters.letters.length, consumer.seen.length]).toEqual([1, 1]);
    expect(kit.log[0]).toContain('DEAD_LETTER_FAILED');
  });
});

describe('tombstones', () => {
  it('are deleted when they are old enough, and only they', async () => {
    const room = kit.room({ discardedMs: 3_600_000, tidyMs: 50 });
    for (const offset of [1, 2]) await park(offset, { reason: 'permanent' });
    await park(3, { consumer: 'audit' });
    await room.events.discard({ eventId: 'e1' }, { by: 'ann', why: 'test' });
    await room.events.discard({ eventId: 'e2' }, { by: 'ann', why: 'test' });
    await kit.dataSource.query(
      `UPDATE parked_events SET due_at = due_at - interval '61 minutes' WHERE event_id <> 'e2'`,
    );
    room.start(new ConsumerDouble(kit.dataSource));
    await until(async () => (await kit.rows()).length === 2, { what: 'the old tombstone gone' });
    expect(await rowsOf()).toEqual([
      ['2', 'discarded'],
      ['3', 'scheduled'],
    ]);
  });
});

it('a poll with nothing due reads an index and no row, also with 100,000 dead ones of held keys', async () => {
  await kit.dataSource.query(
    `INSERT INTO parked_events (state, consumer, group_id, topic, partition, record_offset, record_timestamp, header_names, header_values, hold_key, reason)
     SELECT 'dead', $1, 'billing', 'orders', n % 6, n, now(), '{}', '{}', decode(md5(n::text), 'hex'), 'exhausted' FROM generate_series(1, 100000) n`,
    [CONSUMER],
  );
  await kit.dataSource.query('ANALYZE parked_events');
  const statements = new Map<string, unknown[]>();
  const room = kit.room({
    query: (sql, parameters) => {
      statements.set(sql, parameters);
      return kit.dataSource.query(sql, parameters);
    },
    tidyMs: 3_600_000,
  });
  room.start(new ConsumerDouble(kit.dataSource));
  const lease = await until(
    () => [...statements].find(([sql]) => sql.includes('SKIP LOCKED') && sql.includes('lease_ms')),
    {
      what: 'the lease',
    },
  );
  const plan = (await kit.dataSource.query(`EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) ${lease[0]}`, lease[1])) as [
    { 'QUERY PLAN': [{ Plan: Record<string, unknown> }] },
  ];
  const text = JSON.stringify(plan);
  expect(text).toContain('"Index Name":"parked_events_due"');
  expect(text).not.toContain('"Seq Scan"');
  const root = plan[0]['QUERY PLAN'][0].Plan;
  expect(Number(root['Shared Hit Blocks']) + Number(root['Shared Read Blocks'])).toBeLessThan(10);
});
