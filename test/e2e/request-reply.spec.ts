import { Controller, Inject, type Type } from '@nestjs/common';
import {
  ClientProxyFactory,
  MessagePattern,
  Payload,
  RpcException,
  Transport,
  type ClientKafka,
} from '@nestjs/microservices';
import { logLevel } from 'kafkajs';
import { from, lastValueFrom, toArray } from 'rxjs';
import { DataSource } from 'typeorm';
import { expect, onTestFinished, test } from 'vitest';
import { until } from 'nestjs-kafka-idempotency/testing';
import { eventHandler, writeEffect, type TestEvent } from './kit/handlers.js';
import { testService, testWorld } from './kit/in-test.js';
import type { World } from './kit/world.js';

interface Question extends TestEvent {
  readonly n: number;
}

function requestHandler(topic: string, answer: (question: Question, dataSource: DataSource) => unknown): Type {
  @Controller()
  class Handlers {
    constructor(@Inject(DataSource) private readonly dataSource: DataSource) {}

    @MessagePattern<string>(topic)
    handle(@Payload() question: Question): unknown {
      return answer(question, this.dataSource);
    }
  }
  return Handlers;
}

/** Nest's own Kafka client, ready to ask on the topic. */
async function asker(world: World, topic: string): Promise<ClientKafka> {
  await world.createTopic(`${topic}.reply`);
  const client = ClientProxyFactory.create({
    transport: Transport.KAFKA,
    options: {
      client: { clientId: `${world.group}-asker`, brokers: world.brokers, logLevel: logLevel.NOTHING },
      consumer: { groupId: `${world.group}-asker`, maxWaitTimeInMs: 100 },
    },
  }) as unknown as ClientKafka;
  onTestFinished(() => client.close());
  client.subscribeToResponseOf(topic);
  await client.connect();
  // It refuses to ask before its consumer has been given the reply topic.
  await until(() => client.getConsumerAssignments()[`${topic}.reply`] !== undefined, { what: 'the reply topic' });
  return client;
}

const ask = (client: ClientKafka, topic: string, question: Question): Promise<unknown[]> =>
  lastValueFrom(client.send<unknown>(topic, JSON.stringify(question)).pipe(toArray()));

test('a request gets the value its handler returns, and its offset moves behind it', async () => {
  const world = await testWorld();
  const topic = await world.topic();
  await testService(world, { controllers: [requestHandler(topic, ({ n }) => Promise.resolve({ square: n * n }))] });
  const client = await asker(world, topic);
  expect(await ask(client, topic, { id: 'a', n: 7 })).toEqual([{ square: 49 }]);
  await world.untilCommitted(topic, 1);
});

test('a request gets every value of an Observable', async () => {
  const world = await testWorld();
  const topic = await world.topic();
  await testService(world, { controllers: [requestHandler(topic, ({ n }) => from([n, n + 1, n + 2]))] });
  const client = await asker(world, topic);
  expect((await ask(client, topic, { id: 'a', n: 1 })).map(Number)).toEqual([1, 2, 3]);
});

test('a request whose handler fails gets the error, and does not stop the requests behind it', async () => {
  const world = await testWorld();
  const topic = await world.topic();
  const answer = ({ n }: Question) => {
    if (n < 0) throw new RpcException('negative');
    return Promise.resolve({ root: Math.sqrt(n) });
  };
  await testService(world, { controllers: [requestHandler(topic, answer)] });
  const client = await asker(world, topic);
  await expect(ask(client, topic, { id: 'a', n: -1 })).rejects.toMatchObject({ message: 'negative' });
  expect(await ask(client, topic, { id: 'b', n: 9 })).toEqual([{ root: 3 }]);
  await world.untilCommitted(topic, 2);
});

test.each([
  ['whose value JSON cannot hold', () => ({ n: 1n })],
  [
    'whose error JSON cannot hold',
    () => {
      throw new RpcException({ status: 'error', message: 'no such order', id: 1n });
    },
  ],
])('a request %s gets an error, runs once, and does not stop the requests behind it', async (_, answer) => {
  const world = await testWorld();
  const topic = await world.topic();
  const calls: number[] = [];
  const handler = requestHandler(topic, ({ n }) => {
    calls.push(n);
    return n === 0 ? answer() : Promise.resolve({ n });
  });
  await testService(world, { controllers: [handler] });
  const client = await asker(world, topic);
  await expect(ask(client, topic, { id: 'a', n: 0 })).rejects.toMatchObject({ status: 'error' });
  expect(await ask(client, topic, { id: 'b', n: 1 })).toEqual([{ n: 1 }]);
  expect(calls).toEqual([0, 1]);
});

test('a reply that is too large for its topic becomes an error, runs once, and does not stop the requests behind it', async () => {
  const world = await testWorld();
  const topic = await world.topic();
  const handler = requestHandler(topic, async ({ id, n }, dataSource) => {
    await writeEffect({ dataSource }, id);
    return 'x'.repeat(n);
  });
  await testService(world, { controllers: [handler] });
  const client = await asker(world, topic);
  await expect(ask(client, topic, { id: 'large', n: 2_000_000 })).rejects.toThrow(/MESSAGE_TOO_LARGE/);
  expect(await ask(client, topic, { id: 'small', n: 2 })).toEqual(['xx']);
  await world.untilCommitted(topic, 2);
  expect(await world.effects()).toEqual(['large', 'small']);
});

test('a handler can send with the producer of its context', async () => {
  const world = await testWorld();
  const [topic, other] = [await world.topic(), await world.topic()];
  const handler = eventHandler(topic, async ({ id }, { context }) => {
    await context.getProducer().send({ topic: other, messages: [{ key: id, value: 'sent' }] });
  });
  await testService(world, { controllers: [handler] });
  await world.send(topic, { id: 'a' }, { id: 'b' });
  await world.untilCommitted(topic, 2);
  expect((await world.admin.fetchTopicOffsets(other)).map(({ high }) => high)).toEqual(['2']);
});

test('of a topic with handlers of both kinds the event handler runs for every record, the request handler for requests', async () => {
  const world = await testWorld();
  const topic = await world.topic();
  const service = await testService(world, {
    controllers: [
      eventHandler(topic, ({ id }, tools) => writeEffect(tools, id, 'event')),
      requestHandler(topic, async ({ id }, dataSource) => {
        await writeEffect({ dataSource }, id, 'request');
        return { done: true };
      }),
    ],
  });
  const replies = await world.topic();
  await world.send(topic, { id: 'a' }, { id: 'b', headers: { kafka_correlationId: 'c', kafka_replyTopic: replies } });
  await world.untilCommitted(topic, 2);
  expect(await world.effects('event')).toEqual(['a', 'b']);
  expect(await world.effects('request')).toEqual(['b']);
  expect(await world.admin.fetchTopicOffsets(replies)).toMatchObject([{ high: '1' }]);
  expect(service.failures).toEqual([]);
});

test.each([
  ['a topic that does not exist', { kafka_replyTopic: 'nowhere.to-be-found' }],
  ['a partition that does not exist', { kafka_replyPartition: '7' }],
])('a request that wants its reply in %s runs once and stops nobody', async (_what, headers) => {
  const world = await testWorld();
  const [topic, replies] = [await world.topic(), await world.topic()];
  const service = await testService(world, {
    controllers: [
      requestHandler(topic, async ({ id }, dataSource) => {
        await writeEffect({ dataSource }, id);
        return { done: true };
      }),
    ],
  });
  const asks = { kafka_correlationId: 'c', kafka_replyTopic: replies };
  await world.send(topic, { id: 'a', headers: { ...asks, ...headers } }, { id: 'b', headers: asks });
  await world.untilCommitted(topic, 2);
  expect(await world.effects()).toEqual(['a', 'b']);
  expect(service.failures).toEqual([]);
});
