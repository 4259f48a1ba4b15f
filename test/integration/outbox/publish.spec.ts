import { lastValueFrom } from 'rxjs';
import { describe, expect, it } from 'vitest';
import { contentHash } from 'nestjs-kafka-idempotency';
import { until } from 'nestjs-kafka-idempotency/testing';
import { Topics } from '../kafka/topics.js';
import { rejection, versions } from '../schema/own-schema.js';
import { idsOf, useOutbox, valuesIn } from './kit.js';

const UUID_V7 = /^[\da-f]{8}-[\da-f]{4}-7[\da-f]{3}-[89ab][\da-f]{3}-[\da-f]{12}$/;

describe.each(versions)('an event published in a transaction on %s', (_, orm) => {
  const kit = useOutbox(orm);

  it('is sent once it is committed, with its key, headers and id, and its row goes', async () => {
    const topics = await Topics.open();
    const topic = await topics.create({ partitions: 12 });
    const { publisher, outbox } = kit.room();
    const headers = { traceparent: '00-1', raw: Buffer.from([0xff, 0]) };
    const { id, duplicate } = await kit.scope.run(() =>
      publisher.publish(topic, { amount: 5 }, { key: '100:48069', headers }),
    );
    expect([id, duplicate]).toEqual([expect.stringMatching(UUID_V7), false]);
    expect(await outbox.runOnce()).toBe(1);
    const [stored] = await topics.read(topic);
    expect(stored).toMatchObject({ partition: 9, key: '100:48069', value: '{"amount":5}' });
    expect(stored!.message.headers).toEqual({
      'event-id': Buffer.from(id),
      'content-type': Buffer.from('application/json'),
      traceparent: Buffer.from('00-1'),
      raw: Buffer.from([0xff, 0]),
    });
    expect(await kit.rows()).toEqual([]);
    expect(await outbox.runOnce()).toBe(0);
  });
});

describe('publish()', () => {
  const kit = useOutbox();

  it('B62: sends nothing of a transaction that was rolled back', async () => {
    const topics = await Topics.open();
    const topic = await topics.create();
    const { publisher, outbox } = kit.room();
    const undone = kit.scope.run(async () => {
      await publisher.publish(topic, 'undone');
      throw new Error('no');
    });
    await expect(undone).rejects.toThrow('no');
    await kit.scope.run(() => publisher.publish(topic, 'done'));
    expect(await outbox.runOnce()).toBe(1);
    expect(await valuesIn(topics, topic)).toEqual(['done']);
  });

  it('belongs to the savepoint it is called in', async () => {
    const topics = await Topics.open();
    const topic = await topics.create();
    const { publisher, outbox } = kit.room();
    await kit.scope.run(async () => {
      await publisher.publish(topic, 'outer');
      const inner = kit.dataSource.transaction(async () => {
        await publisher.publish(topic, 'inner');
        throw new Error('no');
      });
      await rejection(inner);
    });
    expect(await outbox.runOnce()).toBe(1);
    expect(await valuesIn(topics, topic)).toEqual(['outer']);
  });

  it('joins a transaction that the caller opened by hand and lends', async () => {
    const topics = await Topics.open();
    const topic = await topics.create();
    const { publisher, outbox } = kit.room();
    await kit.scope.escape(() =>
      kit.dataSource.transaction((manager) => kit.scope.join(manager, () => publisher.publish(topic, 'joined'))),
    );
    expect(await outbox.runOnce()).toBe(1);
  });

  it('B61: is refused with the remedy outside a transaction, in escape(), and when its transaction has ended', async () => {
    const { publisher } = kit.room();
    for (const refused of [
      publisher.publish('orders', 'x'),
      kit.scope.run(() => kit.scope.escape(() => publisher.publish('orders', 'x'))),
    ]) {
      const error = await rejection(refused);
      expect(error).toMatchObject({ code: 'NO_TRANSACTION' });
      expect(error.message).toMatch(/TransactionScope\.run\(\).*\{ direct: true \}/);
    }
    let late: Promise<unknown> = Promise.resolve();
    await kit.scope.run(async () => {
      late = new Promise((resolve) => setTimeout(resolve, 50)).then(() => publisher.publish('orders', 'late'));
    });
    expect(await rejection(late)).toMatchObject({ code: 'NO_TRANSACTION' });
    expect(await kit.rows()).toEqual([]);
  });

  it('B71: refuses what cannot be stored or sent before it writes anything, and the transaction can go on', async () => {
    const { publisher } = kit.room();
    const cyclic: { self?: unknown } = {};
    cyclic.self = cyclic;
    await kit.scope.run(async () => {
      for (const value of [10n, { n: 10n }, cyclic, undefined, () => 1, 'lone \ud800'])
        expect(await rejection(publisher.publish('orders', value))).toMatchObject({ code: 'VALUE_NOT_SERIALIZABLE' });
      expect(await rejection(publisher.publish('orders', 'x'.repeat(1_000_001)))).toMatchObject({
        code: 'MESSAGE_TOO_LARGE',
      });
      for (const options of [
        { id: 'a\0b' },
        { id: '' },
        { dedupeKey: 'a\0b' },
        { headers: { 'event-id': 'x' } },
        { headers: { 'Content-Type': 'x' } },
        { partition: -1 },
      ])
        expect(await rejection(publisher.publish('orders', 'x', options))).toMatchObject({ code: 'OPTIONS_INVALID' });
      expect(await rejection(publisher.publish('no such/topic', 'x'))).toMatchObject({ code: 'OPTIONS_INVALID' });
      await publisher.publish('orders', { d: new Date(0) });
    });
    expect(await kit.rows()).toMatchObject([{ topic: 'orders' }]);
  });

  it('B71: encodes once: Buffers and strings as they are, JSON otherwise, null as a tombstone', async () => {
    const topics = await Topics.open();
    const topic = await topics.create();
    const { publisher, outbox } = kit.room();
    const json = '{"a":1}';
    await kit.scope.run(async () => {
      for (const value of [json, Buffer.from(json), { a: 1, d: new Date(0) }, null])
        await publisher.publish(topic, value, { key: 'k' });
    });
    await outbox.runOnce();
    const stored = await topics.read(topic);
    expect(stored.map(({ value }) => value)).toEqual([json, json, '{"a":1,"d":"1970-01-01T00:00:00.000Z"}', undefined]);
    expect(stored.map(({ message }) => message.headers?.['content-type']?.toString())).toEqual([
      undefined,
      undefined,
      'application/json',
      undefined,
    ]);
  });

  it('adds the headers of CloudEvents on request', async () => {
    const topics = await Topics.open();
    const topic = await topics.create();
    const { publisher, outbox } = kit.room();
    const cloudEvent = { source: '/billing', type: 'captured', subject: 's' };
    await kit.scope.run(() => publisher.publish(topic, 'x', { id: 'e1', cloudEvent }));
    await outbox.runOnce();
    const [stored] = await topics.read(topic);
    const given = Object.entries(stored?.message.headers ?? {});
    const headers = Object.fromEntries(given.map(([name, value]) => [name, value?.toString()]));
    expect(headers).toEqual({
      'event-id': 'e1',
      ce_specversion: '1.0',
      ce_id: 'e1',
      ce_source: '/billing',
      ce_type: 'captured',
      ce_subject: 's',
      ce_time: expect.stringMatching(/^\d{4}-.*Z$/) as string,
    });
  });

  it('says how to make the tables when they were not there at the start', async () => {
    const room = kit.room();
    room.open(kit.own.name, false);
    const error = await rejection(kit.scope.run(() => room.publisher.publish('orders', 'x')));
    expect(error).toMatchObject({ code: 'SCHEMA_MISSING' });
    expect(error.message).toMatch(/migration:run.*sql\/0003-outbox\.sql/);
  });

  it('with direct sends at once, whatever becomes of the transaction', async () => {
    const topics = await Topics.open();
    const topic = await topics.create();
    const { publisher } = kit.room();
    await publisher.publish(topic, 'outside', { direct: true, key: 'k' });
    const undone = kit.scope.run(async () => {
      await publisher.publish(topic, 'inside', { direct: true, key: 'k' });
      throw new Error('no');
    });
    await rejection(undone);
    expect(await valuesIn(topics, topic)).toEqual(['outside', 'inside']);
    expect(await rejection(publisher.publish(topic, 'x', { direct: true, dedupeKey: 'd' }))).toMatchObject({
      code: 'OPTIONS_INVALID',
    });
  });

  it('emit() has the shape of ClientProxy: it publishes at once, in the transaction it is called in', async () => {
    const topics = await Topics.open();
    const topic = await topics.create();
    const { publisher, outbox } = kit.room();
    await kit.scope.run(async () => {
      await lastValueFrom(publisher.emit(topic, { key: 'k', value: { a: 1 }, headers: { h: '1' } }));
      await lastValueFrom(publisher.emit(topic, { b: 2 }), { defaultValue: undefined });
    });
    await outbox.runOnce();
    expect(await valuesIn(topics, topic)).toEqual(['{"a":1}', '{"b":2}']);
    await expect(lastValueFrom(publisher.emit(topic, 'x'))).rejects.toMatchObject({ code: 'NO_TRANSACTION' });
  });
});

describe('a dedupeKey', () => {
  const kit = useOutbox();

  it('makes a second publish a no-op that gives the id of the first, also when that has been sent, per topic', async () => {
    const topics = await Topics.open();
    const [topic, other] = [await topics.create(), await topics.create()];
    const { publisher, outbox } = kit.room();
    const publish = (to: string, value: unknown, dedupeKey: string) =>
      kit.scope.run(() => publisher.publish(to, value, { dedupeKey }));
    const first = await publish(topic, 'one', 'order-1');
    expect(await publish(topic, 'one', 'order-1')).toEqual({ id: first.id, duplicate: true });
    await outbox.runOnce();
    expect(await publish(topic, 'one', 'order-1')).toEqual({ id: first.id, duplicate: true });
    expect(await publish(topic, 'two', 'order-2')).toMatchObject({ duplicate: false });
    expect(await publish(other, 'one', 'order-1')).toMatchObject({ duplicate: false });
    await outbox.runOnce();
    expect(await valuesIn(topics, topic)).toEqual(['one', 'two']);
    expect(await valuesIn(topics, other)).toEqual(['one']);
  });

  it('can be the hash of key and value', async () => {
    const { publisher } = kit.room();
    const publish = (value: unknown, key: string) =>
      kit.scope.run(() => publisher.publish('orders', value, { key, dedupeKey: contentHash }));
    const first = await publish({ paid: true }, 'o1');
    expect(await publish({ paid: true }, 'o1')).toEqual({ id: first.id, duplicate: true });
    expect(await publish({ paid: true }, 'o2')).toMatchObject({ duplicate: false });
    expect(await publish({ paid: false }, 'o1')).toMatchObject({ duplicate: false });
  });

  it('of a transaction that was rolled back was never used', async () => {
    const { publisher } = kit.room();
    const publish = () => publisher.publish('orders', 'x', { dedupeKey: 'd' });
    await rejection(kit.scope.run(() => publish().then(() => Promise.reject(new Error('no')))));
    expect(await kit.scope.run(publish)).toMatchObject({ duplicate: false });
  });

  it('that two publish at once is published once: the later one waits for the end of the first', async () => {
    const { publisher } = kit.room();
    const published = await Promise.all(
      Array.from({ length: 3 }, () => kit.scope.run(() => publisher.publish('orders', 'x', { dedupeKey: 'd' }))),
    );
    expect(published.filter(({ duplicate }) => !duplicate)).toHaveLength(1);
    expect(new Set(published.map(({ id }) => id)).size).toBe(1);
  });

  it('B58: is forgotten after its retention, in small pieces', async () => {
    const room = kit.room({ dedupeRetentionMs: 60_000 });
    await kit.dataSource.query(
      `INSERT INTO outbox_dedupe (created_at, topic, dedupe_key, event_id) SELECT now() - interval '2 minutes', 't', i::text, 'e' FROM generate_series(1, 2500) i`,
    );
    await kit.scope.run(() => room.publisher.publish('t', 'x', { dedupeKey: 'young' }));
    await kit.dataSource.query('DELETE FROM outbox_messages');
    room.start();
    await until(() => kit.events.find(({ name }) => name === 'pruned'), { what: 'the pruning' });
    expect(kit.events).toContainEqual({ name: 'pruned', table: 'outbox_dedupe', rows: 2500 });
    expect(await kit.dataSource.query('SELECT dedupe_key AS key FROM outbox_dedupe')).toEqual([{ key: 'young' }]);
  });
});

describe('a commit', () => {
  const kit = useOutbox();

  it('wakes the relay of the process', async () => {
    const topics = await Topics.open();
    const topic = await topics.create();
    const room = kit.room({ pollMs: 60_000 });
    room.start();
    const { id } = await kit.scope.run(() => room.publisher.publish(topic, 'x'));
    await until(async () => (await kit.rows()).length === 0, { what: 'the row to be sent', timeoutMs: 20_000 });
    expect(idsOf(await topics.read(topic))).toEqual([id]);
  });
});
