import { Controller } from '@nestjs/common';
import { MessagePattern } from '@nestjs/microservices';
import { Kafka, type Producer, type ProducerBatch, type ProducerConfig } from 'kafkajs';
import { expect, onTestFinished, test } from 'vitest';
import { EventPublisher, TransactionScope } from 'nestjs-kafka-idempotency';
import { until } from 'nestjs-kafka-idempotency/testing';
import { Topics } from '../integration/kafka/topics.js';
import { eventHandler } from './kit/handlers.js';
import { testService, testWorld } from './kit/in-test.js';

interface Made {
  readonly config: ProducerConfig;
  readonly batches: ProducerBatch[];
}

/** Every producer that is made from now on, and what it is asked to send. */
function watchProducers(): Made[] {
  const made: Made[] = [];
  const original = Kafka.prototype.producer;
  onTestFinished(() => void (Kafka.prototype.producer = original));
  Kafka.prototype.producer = function (this: Kafka, config: ProducerConfig = {}): Producer {
    const producer = original.call(this, config);
    const batches: ProducerBatch[] = [];
    made.push({ config, batches });
    return { ...producer, sendBatch: (batch) => (batches.push(batch), producer.sendBatch(batch)) };
  };
  return made;
}

/** By Java's murmur2 in the tenth of twelve partitions. */
const KEY = '100:48069';

test('F17 what the relay, the dead letters, a direct publish and the replies send comes from idempotent producers, asks all replicas, and goes where we have chosen', async () => {
  const world = await testWorld();
  const [events, requests] = [await world.topic(), await world.topic()];
  const relayed = await world.topic(12, '.relayed');
  const direct = await world.topic(12, '.direct');
  const dead = await world.topic(12, '.dead');
  const replies = await world.topic(1, '.replies');
  @Controller()
  class Requests {
    @MessagePattern<string>(requests)
    answer() {
      return 'yes';
    }
  }
  const failing = eventHandler(events, () => {
    throw new Error('no luck');
  });
  const made = watchProducers();
  const { app } = await testService(world, {
    controllers: [failing, Requests],
    options: { retry: { attempts: 1 }, deadLetters: { topic: dead } },
  });

  const publisher = app.get(EventPublisher);
  await app.get(TransactionScope).run(() => publisher.publish(relayed, 'x', { key: KEY }));
  await publisher.publish(direct, 'x', { key: KEY, direct: true });
  await world.send(events, { id: 'a', key: KEY });
  await world.send(requests, { id: 'b', headers: { kafka_correlationId: 'c', kafka_replyTopic: replies } });
  const sendersOf = (topic: string) =>
    made.filter(({ batches }) => batches.some((batch) => batch.topicMessages?.some((sent) => sent.topic === topic)));
  const sentTo = [relayed, direct, dead, replies];
  await until(() => sentTo.every((topic) => sendersOf(topic).length > 0), { what: 'a message on each way' });
  await world.untilCommitted(events, 1);
  await world.untilCommitted(requests, 1);

  const ours = new Set(sentTo.flatMap(sendersOf));
  expect(ours.size).toBe(4); // one for each way
  for (const { config, batches } of ours) {
    expect(config).toMatchObject({ idempotent: true, maxInFlightRequests: 1, allowAutoTopicCreation: false });
    expect(config.createPartitioner).toBeTypeOf('function');
    expect(batches.map(({ acks }) => acks)).toEqual([-1]);
  }
  const others = made.filter((one) => !ours.has(one)); // what Nest's context gives to handlers is theirs
  expect(others.map(({ batches }) => batches)).toEqual([[]]);
  const topics = await Topics.open();
  const placesOf = async (topic: string) => (await topics.read(topic)).map(({ partition }) => partition);
  await until(async () => (await placesOf(relayed)).length > 0, { what: 'the relayed message' });
  for (const topic of [relayed, direct, dead]) expect(await placesOf(topic)).toEqual([9]);
});
