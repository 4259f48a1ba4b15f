import { randomUUID } from 'node:crypto';
import { Kafka, KafkaJSProtocolError, logLevel } from 'kafkajs';
import { describe, expect, it, onTestFinished } from 'vitest';
import { until } from 'nestjs-kafka-idempotency/testing';
import { CheckedProducer, SendIncomplete } from '#src/kafka/checked-producer.js';
import { keyShard } from '#src/kafka/key-shard.js';
import { startEmbeddedKafka } from '../../services/services.js';
import { Topics } from '../kafka/topics.js';
import { idsOf, useOutbox, valuesIn, type Row } from './kit.js';
import { onBrokers } from './on-brokers.js';

const kit = useOutbox();

const publishAll = (room: ReturnType<typeof kit.room>, topic: string, values: readonly string[], key?: string) =>
  kit.scope.run(async () => {
    for (const value of values) await room.publisher.publish(topic, value, key === undefined ? {} : { key });
  });
/** Two keys of one shard, and one of another. */
function keysOfShards(): [string, string, string] {
  const keys = Array.from({ length: 17 }, (_, at) => `k${at}`);
  const shard = (key: string) => keyShard(Buffer.from(key));
  const second = keys.find((key, at) => keys.slice(0, at).some((other) => shard(other) === shard(key)))!;
  const first = keys.find((key) => shard(key) === shard(second))!;
  return [first, second, keys.find((key) => shard(key) !== shard(second))!];
}

/** So many numbers, over so many keys. */
const publishOver = (room: ReturnType<typeof kit.room>, topic: string, keys: number, count: number) =>
  kit.scope.run(async () => {
    for (let at = 0; at < count; at += 1) await room.publisher.publish(topic, String(at), { key: `k${at % keys}` });
  });
interface PlanNode {
  readonly 'Relation Name'?: string;
  readonly 'Actual Rows': number;
  readonly 'Actual Loops': number;
  readonly 'Rows Removed by Filter'?: number;
  readonly Plans?: readonly PlanNode[];
}

/** By the statement, in outbox_messages. */
async function rowsWalked(sql: string, parameters: unknown[]): Promise<number> {
  const explain = `EXPLAIN (ANALYZE, FORMAT JSON) ${sql}`;
  const [row] = await kit.dataSource.query<[{ 'QUERY PLAN': [{ Plan: PlanNode }] }]>(explain, parameters);
  const walkedIn = (node: PlanNode): number => {
    const perLoop = node['Actual Rows'] + (node['Rows Removed by Filter'] ?? 0);
    const own = node['Relation Name'] === 'outbox_messages' ? perLoop * node['Actual Loops'] : 0;
    return (node.Plans ?? []).reduce((sum, child) => sum + walkedIn(child), own);
  };
  return walkedIn(row['QUERY PLAN'][0].Plan);
}

const untilEmpty = () =>
  until(async () => (await kit.rows()).length === 0, { what: 'an empty outbox', timeoutMs: 30_000 });

/** Another row, sent. */
const othersOf = (room: ReturnType<typeof kit.room>, topic: string, key: string) => async (): Promise<void> => {
  await publishAll(room, topic, ['other'], key);
  await untilEmpty();
};

/** For longer than a read begins before what was read last. */
async function readOn(others: () => Promise<void>): Promise<void> {
  const since = performance.now();
  await until(async () => (await others(), performance.now() - since > 1500), {
    what: 'reading to go on',
    timeoutMs: 20_000,
  });
}

describe('the relay', () => {
  it('B62: sends a row with a lower id that is committed later, and does not wait for one that never comes', async () => {
    const topics = await Topics.open();
    const topic = await topics.create();
    const room = kit.room();
    const late = await kit.own.session();
    await late.startTransaction();
    await kit.scope.join(late.manager, () => room.publisher.publish(topic, 'late', { key: 'k' }));
    await kit.scope
      .run(() => room.publisher.publish(topic, 'gone').then(() => Promise.reject(new Error())))
      .catch(() => {});
    await publishAll(room, topic, ['early'], 'k');
    room.start();
    await until(async () => (await valuesIn(topics, topic)).length === 1, { what: 'the early one' });
    await late.commitTransaction();
    await until(async () => (await valuesIn(topics, topic)).length === 2, { what: 'the late one', timeoutMs: 20_000 });
    expect(await valuesIn(topics, topic)).toEqual(['early', 'late']);
  });

  it.each([
    ['alone', 0],
    ['behind more rows than a batch', 30],
  ])(
    'B62: keeps the order of a key whose row is committed long after others of its shard were sent, however soon the next one follows: %s',
    async (_how, inFront) => {
      const topics = await Topics.open();
      const topic = await topics.create();
      const room = kit.room({ pollMs: 60_000, batch: 10 });
      room.start();
      const [key, beside, elsewhere] = keysOfShards();
      const others = othersOf(room, topic, beside);
      await others();
      const late = await kit.own.session();
      await late.startTransaction();
      await kit.scope.join(late.manager, async () => {
        for (let at = 0; at < inFront; at += 1) await room.publisher.publish(topic, 'other', { key: elsewhere });
        await room.publisher.publish(topic, 'first', { key });
      });
      await readOn(others);
      await late.commitTransaction();
      await publishAll(room, topic, ['second'], key);
      await untilEmpty();
      expect((await valuesIn(topics, topic)).filter((value) => value !== 'other')).toEqual(['first', 'second']);
    },
  );

  it('B62: keeps the order of a key whose row was written beside an older transaction that drew a higher id and was read first', async () => {
    const topics = await Topics.open();
    const topic = await topics.create();
    const room = kit.room({ pollMs: 60_000 });
    room.start();
    const [key, beside] = keysOfShards();
    const others = othersOf(room, topic, beside);
    await others();
    const late = await kit.own.session();
    await kit.scope.run(async () => {
      await room.publisher.publish(topic, 'other', { key: beside! });
      await late.startTransaction();
      await kit.scope.join(late.manager, () => room.publisher.publish(topic, 'first', { key: key! }));
      await room.publisher.publish(topic, 'in between', { key: key! });
    }); // it wakes the relay, whose snapshot ends in front of the late one
    await untilEmpty();
    await readOn(others);
    await late.commitTransaction();
    await publishAll(room, topic, ['second'], key);
    await untilEmpty();
    const values = await valuesIn(topics, topic);
    expect(values.filter((value) => value !== 'other')).toEqual(['in between', 'first', 'second']);
  });

  it('B62: keeps the order of a key whose row was committed late and then not stored at the first try', async () => {
    const topics = await Topics.open();
    const topic = await topics.create();
    const [key, beside] = keysOfShards();
    let refused = 0;
    const { newProducer } = onBrokers(process.env['KAFKA_BROKERS']!.split(','));
    const newFaulty = () => {
      const producer = newProducer();
      const send = producer.send.bind(producer);
      producer.send = async (messages) => {
        const first = messages.filter(({ value }) => refused === 0 && String(value) === 'first');
        await send(messages.filter((message) => !first.includes(message)));
        if (first.length === 0) return;
        refused += 1;
        throw new SendIncomplete('a leader has moved', first);
      };
      return producer;
    };
    const room = kit.room({ newProducer: newFaulty, pollMs: 60_000 });
    room.start();
    const others = othersOf(room, topic, beside);
    await others();
    const late = await kit.own.session();
    await late.startTransaction();
    await kit.scope.join(late.manager, () => room.publisher.publish(topic, 'first', { key: key! }));
    await publishAll(room, topic, ['in between'], key); // so that reading has passed it in its own shard
    await readOn(others);
    await late.commitTransaction();
    await until(async () => (await others(), refused > 0), { what: 'the refusal', timeoutMs: 20_000 });
    await publishAll(room, topic, ['second'], key);
    await untilEmpty();
    const values = await valuesIn(topics, topic);
    expect(values.filter((value) => value !== 'other')).toEqual(['in between', 'first', 'second']);
  });

  it('keeps the order of each key over many batches, and sends each row once', async () => {
    const topics = await Topics.open();
    const topic = await topics.create({ partitions: 6 });
    const room = kit.room({ batch: 50 });
    const keys = Array.from({ length: 20 }, (_, at) => `k${at}`);
    await kit.scope.run(async () => {
      for (let at = 0; at < 1000; at += 1)
        await room.publisher.publish(topic, String(at), { key: keys[(at * 7) % keys.length]! });
    });
    expect(await room.outbox.runOnce()).toBe(1000);
    const stored = await topics.read(topic);
    expect(stored).toHaveLength(1000);
    for (const key of keys) {
      const values = stored.filter((one) => one.key === key).map(({ value }) => Number(value));
      expect(values).toEqual(values.toSorted((a, b) => a - b));
    }
  });

  it('fills its batches also from one shard', async () => {
    const topics = await Topics.open();
    const topic = await topics.create();
    const room = kit.room();
    const values = Array.from({ length: 1500 }, (_, at) => String(at));
    await publishAll(room, topic, values, 'one');
    expect(await room.outbox.runOnce()).toBe(1500);
    expect(await valuesIn(topics, topic)).toEqual(values);
    expect(kit.events.filter(({ name }) => name === 'relayed').length).toBeLessThan(15);
  });

  it('sends nothing before a barrier begun after its read, and deletes nothing before Kafka has it', async () => {
    const topics = await Topics.open();
    const topic = await topics.create();
    const steps: string[] = [];
    const room = kit.room({ emit: ({ name }) => void steps.push(name) });
    await publishAll(room, topic, ['x']);
    const { dataSource } = kit;
    const query = dataSource.query.bind(dataSource);
    dataSource.query = ((sql: string, parameters?: unknown[]) => {
      if (sql.includes('CROSS JOIN LATERAL')) steps.push('read');
      if (sql.includes('pg_logical_emit_message')) steps.push('barrier');
      if (sql.includes('DELETE FROM')) steps.push('delete');
      return query(sql, parameters);
    }) as typeof dataSource.query;
    await room.outbox.runOnce();
    expect(steps).toEqual(['read', 'barrier', 'relayed', 'delete', 'read']);
  });

  it('reads the next batch, and begins its barrier, while one is sent; what it read ahead is sent behind a barrier too', async () => {
    const topics = await Topics.open();
    const topic = await topics.create();
    const steps: string[] = [];
    const room = kit.room({
      batch: 10,
      emit: ({ name }) => void steps.push(name),
      cluster: {
        existing: async (names) => {
          await until(() => steps.at(-1) === 'barrier 2', { what: 'the next one' });
          return [...names];
        },
      },
    });
    await publishOver(room, topic, 10, 40);
    let [reads, barriers] = [0, 0];
    const { dataSource } = kit;
    const query = dataSource.query.bind(dataSource);
    dataSource.query = ((sql: string, parameters?: unknown[]) => {
      if (sql.includes('CROSS JOIN LATERAL')) steps.push(`read ${(reads += 1)}`);
      if (sql.includes('pg_logical_emit_message')) steps.push(`barrier ${(barriers += 1)}`);
      return query(sql, parameters);
    }) as typeof dataSource.query;
    expect(await room.outbox.runOnce()).toBe(40);
    expect(steps.slice(0, 5)).toEqual(['read 1', 'barrier 1', 'read 2', 'barrier 2', 'relayed']);
    expect(reads).toBe(barriers + 1); // the last one found nothing
  });

  it('what was read ahead of rows that it had to leave out, for their shard was not safely its own, is not sent before them', async () => {
    const topics = await Topics.open();
    const topic = await topics.create();
    const leaseMs = 1500;
    let [reads, isLate] = [0, false];
    let goOn = () => {};
    const renewals = new Promise<void>((resolve) => (goOn = resolve));
    let renewed = Promise.resolve();
    const room = kit.room({
      batch: 10,
      leaseMs,
      query: async (sql, parameters) => {
        const ask = () => kit.scope.escape(() => kit.dataSource.query<unknown[]>(sql, parameters));
        if (sql.includes('low_water_id = h.low')) {
          await renewals; // the database is slow
          const answer = ask();
          renewed = answer.then(() => {});
          return answer;
        }
        if (sql.includes('CROSS JOIN LATERAL') && (reads += 1) === 2) {
          await until(() => isLate, { what: 'the lease to run out' });
          setImmediate(goOn); // when the first batch has been left out
          await renewals;
          await until(() => renewed.then(() => true), { what: 'the lease to be renewed' });
        }
        return ask();
      },
      cluster: {
        existing: async (names) => {
          const since = performance.now();
          await until(() => performance.now() - since > leaseMs * 0.8, { what: 'the lease to run out' });
          isLate = true;
          return [...names];
        },
      },
    });
    await publishOver(room, topic, 10, 40);
    room.start();
    await untilEmpty();
    const values = [...new Set(await valuesIn(topics, topic))].map(Number);
    expect(values).toHaveLength(40);
    for (let key = 0; key < 10; key += 1) {
      const ofKey = values.filter((value) => value % 10 === key);
      expect(ofKey).toEqual(ofKey.toSorted((a, b) => a - b));
    }
  });

  it('begins its reads behind what was sent, also while another session keeps its old snapshot', async () => {
    const topics = await Topics.open();
    const topic = await topics.create();
    const old = await kit.own.session();
    await old.startTransaction('REPEATABLE READ');
    await old.query('SELECT 1 FROM outbox_messages');
    const starts: bigint[] = [];
    const room = kit.room({
      query: (sql, parameters) => {
        if (sql.includes('CROSS JOIN LATERAL')) starts.push(...(parameters[1] as string[]).map(BigInt));
        return kit.scope.escape(() => kit.dataSource.query(sql, parameters));
      },
    });
    const values = Array.from({ length: 200 }, (_, at) => String(at));
    await publishAll(room, topic, values, 'k');
    room.start();
    await untilEmpty();
    // For the next owner.
    const low = 'SELECT max(low_water_id)::integer AS low FROM outbox_shards';
    await until(async () => ((await kit.dataSource.query<{ low: number }[]>(low))[0]?.low ?? 0) >= 200, {
      what: 'the low water to rise',
      timeoutMs: 30_000,
    });
    expect(starts.some((id) => id >= 200n)).toBe(true);
    await publishAll(room, topic, ['last'], 'k');
    await untilEmpty();
    expect(await valuesIn(topics, topic)).toEqual([...values, 'last']);
    await old.rollbackTransaction();
  });

  it('a read of a long backlog walks over few rows more than it gives', async () => {
    const topics = await Topics.open();
    const topic = await topics.create();
    const batch = 100;
    const walked: number[] = [];
    const room = kit.room({
      batch,
      query: (sql, parameters) =>
        kit.scope.escape(async () => {
          if (sql.includes('CROSS JOIN LATERAL')) walked.push(await rowsWalked(sql, parameters));
          return kit.dataSource.query(sql, parameters);
        }),
    });
    await publishOver(room, topic, 500, 5000);
    await kit.dataSource.query('ANALYZE outbox_messages'); // a planner that knows the table may choose otherwise
    expect(await room.outbox.runOnce()).toBe(5000);
    expect(walked.length).toBeGreaterThanOrEqual(50);
    expect(Math.max(...walked)).toBeLessThan(6 * batch); // two batches are in hand, and each shard gives what it may have to
  });

  it('deletes a row only as the event it has sent: a server that lost commits in a failover gives their ids again', async () => {
    const topics = await Topics.open();
    const topic = await topics.create();
    const { newProducer } = onBrokers(process.env['KAFKA_BROKERS']!.split(','));
    let isGivenAgain = false;
    const room = kit.room({
      newProducer: () => {
        const producer = newProducer();
        const send = producer.send.bind(producer);
        producer.send = async (messages) => {
          await send(messages);
          if (!isGivenAgain)
            await kit.dataSource.query(`UPDATE outbox_messages SET event_id = 'another', message_value = 'y'`);
          isGivenAgain = true;
        };
        return producer;
      },
    });
    await publishAll(room, topic, ['x'], 'k');
    await room.outbox.runOnce();
    await room.outbox.runOnce();
    expect(await valuesIn(topics, topic)).toEqual(['x', 'y']);
    expect(await kit.rows()).toEqual([]);
  });

  it('with relay false does not run, and what it wrote is sent by another process', async () => {
    const topics = await Topics.open();
    const topic = await topics.create();
    const writer = kit.room({ relay: false });
    writer.start();
    await publishAll(writer, topic, ['x', 'y']);
    expect(await writer.outbox.stats()).toMatchObject({ pending: 2, parked: 0 });
    expect((await writer.outbox.stats()).oldestAgeMs).toBeGreaterThan(0);
    kit.room().start();
    await untilEmpty();
    expect(await writer.outbox.stats()).toEqual({ pending: 0, parked: 0, oldestAgeMs: 0, lagMs: 0 });
    expect(await valuesIn(topics, topic)).toHaveLength(2);
  });

  it('gives its shards back when it stops', async () => {
    const topics = await Topics.open();
    const topic = await topics.create();
    const first = kit.room({ leaseMs: 600_000 });
    first.start();
    await publishAll(first, topic, ['x']);
    await untilEmpty();
    await first.stop();
    const second = kit.room();
    await publishAll(second, topic, ['y']);
    expect(await second.outbox.runOnce()).toBe(1);
  });
});

describe('a row that Kafka does not take', () => {
  it('F10: B65: too large for its topic is parked alone, with the reason; all others are sent', async () => {
    const topics = await Topics.open();
    const topic = await topics.create({ config: { 'max.message.bytes': '20000' } });
    const room = kit.room();
    await publishAll(room, topic, ['a', 'b', 'x'.repeat(30_000), 'c', 'd'], 'k');
    expect(await room.outbox.runOnce()).toBe(4);
    expect([...new Set(await valuesIn(topics, topic))]).toEqual(['a', 'b', 'c', 'd']);
    const [parked] = (await kit.rows()) as [Row];
    expect(parked).toMatchObject({ state: 'parked', attempts: 1, code: 'MESSAGE_TOO_LARGE' });
    expect(parked.message).toContain('max.message.bytes');
    expect(kit.events).toContainEqual(expect.objectContaining({ name: 'unsent', topic, eventId: parked.eventId }));
    expect(kit.log.join()).toMatch(/was parked after 1 attempts \(MESSAGE_TOO_LARGE\)/);
    expect(await room.outbox.stats()).toMatchObject({ pending: 0, parked: 1 });
  });

  it('B65: for a topic that does not exist is parked after its attempts, does not hold up other topics, and is sent by retry() under its id', async () => {
    const topics = await Topics.open();
    const [topic, missing] = [await topics.create(), `missing-${randomUUID()}`];
    const room = kit.room();
    room.start();
    await publishAll(room, missing, ['m'], 'k');
    await publishAll(room, topic, ['x'], 'other');
    await until(async () => (await kit.rows()).every(({ state }) => state === 'parked'), {
      what: 'the parked row',
      timeoutMs: 20_000,
    });
    expect(await valuesIn(topics, topic)).toEqual(['x']);
    const [parked] = (await kit.rows()) as [Row];
    expect(parked).toMatchObject({ topic: missing, attempts: 3, code: 'TOPIC_MISSING' });
    await topics.create({ topic: missing });
    expect(await room.outbox.retry([parked.id], { by: 'ann' })).toBe(1);
    await untilEmpty();
    expect(idsOf(await topics.read(missing))).toEqual([parked.eventId]);
    expect(await room.outbox.retry([parked.id], { by: 'ann' })).toBe(0);
  });

  it('holds back the later rows of its key that were read ahead, too', async () => {
    const topics = await Topics.open();
    const topic = await topics.create();
    const room = kit.room({ batch: 10, backoff: { delayMs: 60_000, factor: 1, maxDelayMs: 60_000, jitter: 'none' } });
    await kit.scope.run(() => room.publisher.publish(topic, 'bad', { key: 'k3', partition: 7 }));
    await publishOver(room, topic, 10, 40);
    expect(await room.outbox.runOnce()).toBe(36);
    expect((await topics.read(topic)).filter(({ key }) => key === 'k3')).toEqual([]);
    expect((await kit.rows()).map(({ attempts }) => attempts)).toEqual([1, 0, 0, 0, 0]);
  });

  it('holds back the later rows of its key, and of no other, until it is parked', async () => {
    const topics = await Topics.open();
    const topic = await topics.create();
    const room = kit.room({ backoff: { delayMs: 60_000, factor: 1, maxDelayMs: 60_000, jitter: 'none' } });
    await kit.scope.run(async () => {
      await room.publisher.publish(topic, 'bad', { key: 'k', partition: 7 });
      await room.publisher.publish(topic, 'other', { key: 'l' });
    });
    expect(await room.outbox.runOnce()).toBe(1);
    await publishAll(room, topic, ['behind'], 'k');
    await publishAll(room, topic, ['other'], 'm');
    expect(await room.outbox.runOnce()).toBe(1);
    expect(await valuesIn(topics, topic)).toEqual(['other', 'other']);
    expect(await kit.rows()).toMatchObject([{ attempts: 1, code: 'SEND_INCOMPLETE' }, { attempts: 0 }]);
    const next = kit.room({ attempts: 2 }); // knows nothing of it but what stands in the row
    expect(await next.outbox.runOnce()).toBe(0);
    await kit.dataSource.query('UPDATE outbox_messages SET due_at = now()');
    const last = kit.room({ attempts: 2 });
    last.start();
    await until(async () => (await kit.rows()).length === 1, { what: 'the one behind', timeoutMs: 30_000 });
    expect(await valuesIn(topics, topic)).toEqual(['other', 'other', 'behind']);
    expect(await kit.rows()).toMatchObject([{ state: 'parked', attempts: 2, code: 'SEND_INCOMPLETE' }]);
  }, 120_000);
});

describe('several relays', () => {
  it('B64: send each row once, without faults', async () => {
    const topics = await Topics.open();
    const topic = await topics.create({ partitions: 3 });
    const rooms = Array.from({ length: 4 }, () => kit.room({ batch: 100 }));
    for (const room of rooms) room.start();
    await kit.scope.run(async () => {
      for (let at = 0; at < 3000; at += 1) await rooms[0]!.publisher.publish(topic, String(at), { key: `k${at % 40}` });
    });
    await untilEmpty();
    const ids = idsOf(await topics.read(topic));
    expect([ids.length, new Set(ids).size]).toEqual([3000, 3000]);
  });

  it('F11: one whose shards were taken over can neither delete nor mark a row, and says so', async () => {
    const topics = await Topics.open();
    const topic = await topics.create({ config: { 'max.message.bytes': '20000' } });
    let isTaken = false;
    const zombie = kit.room({
      query: async (sql, parameters) => {
        if (!isTaken && /DELETE FROM|SET attempts/.test(sql)) {
          isTaken = true; // at the worst moment: Kafka has the rows
          const take = `UPDATE outbox_shards SET owner = gen_random_uuid(), token = token + 1, lease_until = now() + interval '1 minute'`;
          await kit.dataSource.query(take);
        }
        return kit.scope.escape(() => kit.dataSource.query(sql, parameters));
      },
    });
    await publishAll(zombie, topic, ['a', 'x'.repeat(30_000), 'b'], 'k');
    await zombie.outbox.runOnce();
    expect(await kit.rows()).toMatchObject(Array.from({ length: 3 }, () => ({ state: 'pending', attempts: 0 })));
    expect(kit.log.join()).toContain('LEASE_LOST');
    expect(kit.events.filter(({ name }) => name === 'unsent')).toEqual([]);
    await publishAll(zombie, topic, ['c'], 'k');
    expect(await zombie.outbox.runOnce()).toBe(0);
  });
});

describe('a broker that is away', () => {
  it('B68: whose producer is stuck sends by a new one after each error, in order, and no attempt counts', async () => {
    const topics = await Topics.open();
    const topic = await topics.create();
    const stuck = stuckProducers(3);
    const room = kit.room({ newProducer: stuck.newProducer });
    await publishAll(room, topic, ['a', 'b'], 'k');
    room.start();
    await untilEmpty();
    expect(await valuesIn(topics, topic)).toEqual(['a', 'b']);
    expect(stuck.sends).toEqual([2, 2, 2, 2]); // of a producer each
    expect(kit.events.map(({ name }) => name)).toEqual(['relayed']); // three attempts that counted would have parked a row
  });

  it('F09: keeps every row whose acknowledgement did not come, counts no attempt, and each is sent when it is back', async () => {
    const kafka = await startEmbeddedKafka();
    onTestFinished(() => kafka.close());
    const topics = await Topics.open(kafka.brokers);
    const topic = await topics.create();
    const room = kit.room({ ...onBrokers(kafka.brokers), batch: 20, pollMs: 60_000 });
    const values = Array.from({ length: 2000 }, (_, at) => String(at));
    await publishAll(room, topic, values, 'k');
    room.start();
    await until(() => kit.events.filter(({ name }) => name === 'relayed').length >= 3, { what: 'some batches' });
    await kafka.node(1).kill();
    await until(() => kit.log.some((line) => line.includes('Nothing of the outbox is sent')), {
      what: 'the outage to be told',
      timeoutMs: 60_000,
    });
    const left = await kit.rows();
    expect(left.length).toBeGreaterThan(0);
    expect(left.every(({ state, attempts }) => state === 'pending' && attempts === 0)).toBe(true);
    await kafka.node(1).start();
    await until(async () => (await kit.rows()).length === 0, { what: 'an empty outbox', timeoutMs: 60_000 });
    const stored = await topics.read(topic);
    const firsts = [
      ...new Map(stored.map(({ value, message }) => [String(message.headers?.['event-id']), value])).values(),
    ];
    expect(firsts).toEqual(values);
  }, 240_000);
});

/** Real producers, the first of which the broker refuses for their sequence numbers, as each of them tells once. */
function stuckProducers(count: number) {
  /** Messages of each producer that was made and sent. */
  const sends: number[] = [];
  const newKafka = (): Kafka => {
    const kafka = new Kafka({ brokers: process.env['KAFKA_BROKERS']?.split(',') ?? [], logLevel: logLevel.NOTHING });
    const make = kafka.producer.bind(kafka);
    kafka.producer = (config) => {
      const producer = make(config);
      const nr = sends.push(0) - 1;
      return {
        ...producer,
        sendBatch: async (batch) => {
          sends[nr]! += batch.topicMessages?.flatMap(({ messages }) => messages).length ?? 0;
          if (nr < count) throw outOfOrder();
          return producer.sendBatch(batch);
        },
      };
    };
    return kafka;
  };
  const settings = { compression: 'none', createPartitioner: undefined } as const;
  return { sends, newProducer: () => new CheckedProducer(newKafka, settings) };
}

function outOfOrder(): KafkaJSProtocolError {
  const type = 'OUT_OF_ORDER_SEQUENCE_NUMBER';
  return new KafkaJSProtocolError(Object.assign(new Error(type), { name: 'KafkaJSProtocolError', type }));
}
