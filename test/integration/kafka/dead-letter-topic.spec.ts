import { randomUUID } from 'node:crypto';
import { expect, onTestFinished, test } from 'vitest';
import { CheckedProducer } from '#src/kafka/checked-producer.js';
import { ClusterReader } from '#src/kafka/cluster-reader.js';
import { DeadLetterTopic } from '#src/kafka/dead-letter-topic.js';
import { Topics } from './topics.js';

function deadLetterTopic(topics: Topics, topic: string): DeadLetterTopic {
  const producer = new CheckedProducer(topics.newKafka, { compression: 'none', createPartitioner: undefined });
  const reader = new ClusterReader(topics.newKafka);
  const letters = new DeadLetterTopic(topic, producer, reader);
  onTestFinished(() => letters.close());
  return letters;
}

test('key, value and headers arrive byte for byte, in the partition of the key', async () => {
  const topics = await Topics.open();
  const topic = await topics.create({ partitions: 12 });
  const bytes = Buffer.from([0xff, 0x00, 0xfe, 0x80]);
  const headers = [
    ['b', bytes],
    ['a', Buffer.from('1')],
    ['b', Buffer.from('')],
    ['a', Buffer.from('2')],
    ['__proto__', Buffer.from('p')],
    ['nothing', null],
  ] as const;
  expect(await deadLetterTopic(topics, topic).publish({ key: bytes, value: bytes, headers })).toBe('sent');
  const [{ partition, message }] = (await topics.read(topic)) as [Awaited<ReturnType<Topics['read']>>[0]];
  expect(partition).toBe(8); // murmur2 of the key in Java, of 12
  expect(message.key).toEqual(bytes);
  expect(message.value).toEqual(bytes);
  expect(Object.entries(message.headers!)).toEqual([
    ['b', [bytes, Buffer.from('')]],
    ['a', [Buffer.from('1'), Buffer.from('2')]],
    ['__proto__', [Object.prototype, Buffer.from('p')]], // kafkajs, reading, takes what every object has for a first value
    ['nothing', Buffer.from('')], // kafkajs cannot write null here
  ]);
});

test('a tombstone without key stays one', async () => {
  const topics = await Topics.open();
  const topic = await topics.create();
  await deadLetterTopic(topics, topic).publish({ key: null, value: null, headers: [] });
  const [found] = await topics.read(topic);
  expect(found?.message).toMatchObject({ key: null, value: null, headers: {} });
});

test('a letter above max.message.bytes is told as too large, and the next one is sent', async () => {
  const topics = await Topics.open();
  const topic = await topics.create({ config: { 'max.message.bytes': '2000' } });
  const letters = deadLetterTopic(topics, topic);
  const value = Buffer.alloc(1500, 'x');
  const trace = Buffer.alloc(1000, 't');
  expect(await letters.publish({ key: null, value, headers: [['trace', trace]] })).toBe('too-large');
  expect(await letters.publish({ key: null, value, headers: [] })).toBe('sent');
  expect(await topics.read(topic)).toHaveLength(1);
});

test('a missing topic fails the check by name, and rejects what is published', async () => {
  const topics = await Topics.open();
  const topic = `dead-${randomUUID()}`;
  const letters = deadLetterTopic(topics, topic);
  await expect(letters.check()).rejects.toMatchObject({ code: 'TOPIC_MISSING', facts: { topic } });
  await expect(letters.check()).rejects.toThrow(`${topic}, does not exist`);
  await expect(letters.publish({ key: null, value: null, headers: [] })).rejects.toMatchObject({ retryable: true });
  await topics.create({ topic });
  await letters.check();
});
