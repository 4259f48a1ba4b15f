import type { KafkaMessage } from 'kafkajs';
import { onTestFinished, expect, test } from 'vitest';
import { currentDelivery, IdempotencyHealth, ParkedEvents } from 'nestjs-kafka-idempotency';
import { until } from 'nestjs-kafka-idempotency/testing';
import { eventHandler, writeEffect } from './kit/handlers.js';
import { testService, testWorld } from './kit/in-test.js';
import { parkedRows } from './kit/parked.js';
import type { World } from './kit/world.js';

const ONE = { attempts: 1, delay: 10, factor: 1, jitter: 'none' } as const;

interface Letter {
  readonly partition: number;
  readonly message: KafkaMessage;
  header(name: string): string | undefined;
}

/** Everything that comes to the topic. */
async function lettersOf(world: World, topic: string): Promise<Letter[]> {
  const letters: Letter[] = [];
  const consumer = world.kafka.consumer({ groupId: `${topic}-reader`, sessionTimeout: 6000, maxWaitTimeInMs: 100 });
  onTestFinished(() => consumer.disconnect());
  await consumer.connect();
  await consumer.subscribe({ topic, fromBeginning: true });
  await consumer.run({
    eachMessage: async ({ partition, message }) => {
      letters.push({ partition, message, header: (name) => message.headers?.[name]?.toString() });
    },
  });
  return letters;
}

function failing(topic: string, ids: readonly string[], error: () => Error = () => new Error('no luck\r\nat all')) {
  return eventHandler(topic, async ({ id }, tools) => {
    await writeEffect(tools, id);
    if (ids.includes(id)) throw error();
  });
}

test('B39 a dead event is copied to the topic by its key, byte for byte, with where it comes from and why', async () => {
  const world = await testWorld();
  const [topic, dead] = [await world.topic(6), await world.topic(2, '.dead')];
  const letters = await lettersOf(world, dead);
  await testService(world, {
    options: { retry: { ...ONE, attempts: 2 }, deadLetters: { topic: dead } },
    controllers: [
      eventHandler<Buffer>(
        topic,
        () => {
          throw new Error('no luck\r\nat all');
        },
        { decode: 'bytes' },
      ),
    ],
  });
  const bytes = { key: Buffer.from('fffe01', 'hex'), value: Buffer.from('0000000007' + '80ff', 'hex') };
  await world.sendRaw(topic, { ...bytes, partition: 5, headers: { 'event-id': 'e1', trace: ['one', 'two'] } });
  await world.untilCommitted(topic, 1, 5);
  await until(() => letters.length === 1, { what: 'the dead letter' });
  const [letter] = letters;
  expect(letter?.message).toMatchObject(bytes);
  expect(letter?.message.headers?.['trace']).toEqual([Buffer.from('one'), Buffer.from('two')]);
  const facts = [
    'version',
    'consumer',
    'group',
    'topic',
    'partition',
    'offset',
    'event-id',
    'reason',
    'error-code',
    'error-name',
    'error-message',
    'attempts',
    'rounds',
    'replays',
  ];
  expect(Object.fromEntries(facts.map((name) => [name, letter?.header(`dead-letter-${name}`)]))).toEqual({
    version: '1',
    consumer: 'test',
    group: world.group,
    topic,
    partition: '5',
    offset: '0',
    'event-id': 'e1',
    reason: 'exhausted',
    'error-code': 'HANDLER_FAILED',
    'error-name': 'Error',
    'error-message': 'no luck at all',
    attempts: '2',
    rounds: '0',
    replays: '0',
  });
  expect(letter?.message.headers).not.toHaveProperty('dead-letter-error-stack');
  expect(await parkedRows(world)).toMatchObject([{ state: 'dead', event_id: 'e1' }]);
});

test('B39 events of one key go to one partition of the dead letters, whichever they come from', async () => {
  const world = await testWorld();
  const [topic, dead] = [await world.topic(3), await world.topic(5, '.dead')];
  const letters = await lettersOf(world, dead);
  await testService(world, {
    options: { retry: ONE, deadLetters: { topic: dead } },
    controllers: [failing(topic, ['a', 'b', 'c'])],
  });
  await world.send(topic, ...['a', 'b', 'c'].map((id, partition) => ({ id, key: 'one key', partition })));
  await until(() => letters.length === 3, { what: 'three dead letters' });
  expect(new Set(letters.map(({ partition }) => partition)).size).toBe(1);
});

test('B38 F39 the offset waits for a dead-letter topic that is gone, health says so, and one copy is there when it is back', async () => {
  const world = await testWorld();
  const [topic, dead] = [await world.topic(2), await world.topic(1, '.dead')];
  const service = await testService(world, {
    options: { retry: ONE, deadLetters: { topic: dead } },
    controllers: [failing(topic, ['a'])],
  });
  await until(() => service.named('assigned').length > 0, { what: 'the join' });
  await world.admin.deleteTopics({ topics: [dead] });
  await until(async () => !(await world.admin.listTopics()).includes(dead), { what: 'the topic to be gone' });
  await world.send(topic, { id: 'a', partition: 0 }, { id: 'b', partition: 0 });
  await until(
    async () =>
      (await service.app.get(IdempotencyHealth).check()).reasons.some(({ code }) => code === 'DEAD_LETTER_FAILED'),
    { what: 'the alarm', timeoutMs: 30_000 },
  );
  expect(await world.committed(topic)).toBe(0n);
  expect(await parkedRows(world)).toEqual([]);
  await world.send(topic, { id: 'c', partition: 1 });
  await world.untilCommitted(topic, 1, 1); // the other partition goes on

  await world.createTopic(dead);
  await world.untilCommitted(topic, 2, 0);
  const letters = await lettersOf(world, dead);
  await until(() => letters.length > 0, { what: 'the dead letter' });
  expect(letters).toHaveLength(1);
  expect(await world.admin.fetchTopicOffsets(dead)).toMatchObject([{ high: '1' }]);
  expect(await world.effects()).toEqual(['c', 'b']);
  expect(await parkedRows(world)).toMatchObject([{ event_id: 'a' }]);
});

test('B38 a record that is too large with its error goes without it; one that is too large at all is kept as a row alone', async () => {
  const world = await testWorld();
  const topic = await world.topic();
  const dead = world.topicName('.dead');
  await world.admin.createTopics({
    topics: [
      {
        topic: dead,
        numPartitions: 1,
        replicationFactor: 1,
        configEntries: [{ name: 'max.message.bytes', value: '8000' }],
      },
    ],
  });
  const letters = await lettersOf(world, dead);
  await testService(world, {
    options: { retry: ONE, deadLetters: { topic: dead, stack: true } },
    controllers: [
      eventHandler<Buffer>(
        topic,
        () => {
          throw new Error('x'.repeat(5000));
        },
        { decode: 'bytes' },
      ),
    ],
  });
  await world.sendRaw(
    topic,
    { value: Buffer.alloc(5000, 'a'), headers: { 'event-id': 'trimmed' } },
    { value: Buffer.alloc(8500, 'a'), headers: { 'event-id': 'row' } },
    { value: Buffer.alloc(10, 'a'), headers: { 'event-id': 'whole' } },
  );
  await world.untilCommitted(topic, 3);
  await until(() => letters.length === 2, { what: 'two dead letters' });
  expect(
    letters.map((letter) => [letter.header('event-id'), letter.header('dead-letter-error-message')?.length]),
  ).toEqual([
    ['trimmed', undefined],
    ['whole', 1024],
  ]);
  expect(letters[1]?.header('dead-letter-error-stack')).toContain('Error: xxx');
  expect(await parkedRows(world)).toHaveLength(3);
});

test('S6 dead-letter headers that somebody put on another topic say nothing: the handler does not see them, and the copy has ours', async () => {
  const world = await testWorld();
  const [topic, dead] = [await world.topic(), await world.topic(1, '.dead')];
  const letters = await lettersOf(world, dead);
  const seen: string[][] = [];
  await testService(world, {
    options: { retry: ONE, deadLetters: { topic: dead } },
    controllers: [
      eventHandler(topic, (_event, { context }) => {
        seen.push([...(currentDelivery()?.headers.keys() ?? [])], Object.keys(context.getMessage().headers ?? {}));
        throw new Error('no');
      }),
    ],
  });
  await world.send(topic, { id: 'a', headers: { 'dead-letter-attempts': '99', 'dead-letter-topic': 'elsewhere' } });
  await until(() => letters.length === 1, { what: 'the dead letter' });
  expect(seen).toEqual([['event-id'], ['event-id']]);
  expect([letters[0]?.header('dead-letter-attempts'), letters[0]?.header('dead-letter-topic')]).toEqual(['1', topic]);
});

test('a replay sends nothing to the topic', async () => {
  const world = await testWorld();
  const [topic, dead] = [await world.topic(), await world.topic(1, '.dead')];
  const service = await testService(world, {
    options: { retry: ONE, deadLetters: { topic: dead } },
    controllers: [failing(topic, ['a'])],
  });
  await world.send(topic, { id: 'a' });
  await world.untilCommitted(topic, 1);
  expect(await service.app.get(ParkedEvents).replay({ state: 'dead' }, { by: 'test' })).toMatchObject({ failed: 1 });
  expect(await world.admin.fetchTopicOffsets(dead)).toMatchObject([{ high: '1' }]);
});

test('B22 a dead-letter topic that does not exist refuses the start, by name', async () => {
  const world = await testWorld();
  const topic = await world.topic();
  const starting = testService(world, {
    options: { deadLetters: { topic: `${topic}.nowhere` } },
    controllers: [failing(topic, [])],
  });
  await expect(starting).rejects.toMatchObject({
    code: 'TOPIC_MISSING',
    message: expect.stringContaining(`${topic}.nowhere`) as string,
  });
});
