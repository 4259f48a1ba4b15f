import { randomUUID } from 'node:crypto';
import { expect, onTestFinished, test } from 'vitest';
import { CheckedProducer, type OutgoingMessage, type ProducerSettings } from '#src/kafka/checked-producer.js';
import { startEmbeddedKafka } from '../../services/services.js';
import { until } from 'nestjs-kafka-idempotency/testing';
import { Topics } from './topics.js';

function checkedProducer(topics: Topics, settings: Partial<ProducerSettings> = {}): CheckedProducer {
  const checked = new CheckedProducer(topics.newKafka, {
    compression: 'none',
    createPartitioner: undefined,
    ...settings,
  });
  onTestFinished(() => checked.close());
  return checked;
}

test.each(['none', 'gzip'] as const)(
  'what is sent is stored in order, in the partition of its key (compression %s)',
  async (compression) => {
    const topics = await Topics.open();
    const topic = await topics.create({ partitions: 12 });
    const checked = checkedProducer(topics, { compression });
    await Promise.all(['1', '2', '3'].map((value) => checked.send([{ topic, key: '100:48069', value }])));
    await checked.send([{ topic, key: '100:48069', value: 'pinned', partition: 4 }]);
    expect((await topics.read(topic)).map(({ partition, value }) => `${partition}:${value}`)).toEqual([
      '4:pinned',
      '9:1',
      '9:2',
      '9:3',
    ]);
  },
);

test('a message above the topic’s max.message.bytes is MESSAGE_TOO_LARGE, and what follows is stored', async () => {
  const topics = await Topics.open();
  const topic = await topics.create({ config: { 'max.message.bytes': '2000' } });
  const checked = checkedProducer(topics);
  const sending = checked.send([{ topic, value: 'x'.repeat(3000) }]);
  await expect(sending).rejects.toMatchObject({ code: 'MESSAGE_TOO_LARGE', retryable: false });
  await expect(sending).rejects.toThrow(new RegExp(topic));
  await checked.send([{ topic, value: 'small' }]);
  expect((await topics.read(topic)).map(({ value }) => value)).toEqual(['small']);
});

test('after a send that was refused in part, nothing of another partition is taken for a repetition', async () => {
  const topics = await Topics.open();
  const topic = await topics.create({ partitions: 2, config: { 'max.message.bytes': '2000' } });
  const checked = checkedProducer(topics);
  const refused = checked.send([
    { topic, value: 'first', partition: 0 },
    { topic, value: 'x'.repeat(3000), partition: 1 },
  ]);
  await expect(refused).rejects.toMatchObject({ code: 'MESSAGE_TOO_LARGE' });
  await checked.send([{ topic, value: 'second', partition: 0 }]);
  expect((await topics.read(topic)).map(({ value }) => value)).toEqual(['first', 'second']);
});

test('a missing topic is named, and does not stand in the way of others, nor of itself once it is made', async () => {
  const topics = await Topics.open();
  const [missing, other] = [`checked-${randomUUID()}`, await topics.create()];
  const checked = checkedProducer(topics);
  const sending = checked.send([{ topic: missing, value: 'x' }]);
  await expect(sending).rejects.toMatchObject({ code: 'BROKER_UNAVAILABLE', retryable: true });
  await expect(sending).rejects.toThrow(new RegExp(missing));
  await checked.send([{ topic: other, value: 'x' }]);
  await topics.create({ topic: missing });
  await checked.send([{ topic: missing, value: 'x' }]);
  expect(await topics.read(missing)).toHaveLength(1);
});

test('a partition that does not exist is never taken for stored', async () => {
  const topics = await Topics.open();
  const topic = await topics.create();
  const sending = checkedProducer(topics).send([
    { topic, value: 'x', partition: 0 },
    { topic, value: 'y', partition: 7 },
  ]);
  await expect(sending).rejects.toMatchObject({ code: 'SEND_INCOMPLETE', retryable: true });
});

test('no acknowledged message is lost when a broker of three is killed', async () => {
  const kafka = await startEmbeddedKafka({ brokers: 3 });
  onTestFinished(() => kafka.close());
  const topics = await Topics.open(kafka.brokers);
  const topic = await topics.create({ partitions: 6, replicas: 3, config: { 'min.insync.replicas': '2' } });
  const checked = checkedProducer(topics);
  const acknowledged: string[] = [];
  let rounds = 0;
  const round = async (): Promise<void> => {
    const values = [0, 1, 2, 3, 4, 5].map((partition): OutgoingMessage => {
      return { topic, partition, value: `${rounds}/${partition}` };
    });
    rounds += 1;
    await checked.send(values).then(
      () => acknowledged.push(...values.map(({ value }) => String(value))),
      () => {}, // told as not stored: owed to nobody
    );
  };
  for (const id of [1, 2]) {
    const [from, sending] = [acknowledged.length, { on: true }];
    const flow = (async () => {
      while (sending.on) await round();
    })();
    await until(() => acknowledged.length >= from + 300, { what: 'messages before the kill', timeoutMs: 30_000 });
    await kafka.node(id).kill();
    const atKill = acknowledged.length;
    await until(() => acknowledged.length >= atKill + 300, { what: 'messages after the kill', timeoutMs: 60_000 });
    sending.on = false;
    await flow;
    await kafka.node(id).start();
  }
  const stored = new Set((await topics.read(topic)).map(({ value }) => value));
  expect(acknowledged.filter((value) => !stored.has(value))).toEqual([]);
}, 240_000);
