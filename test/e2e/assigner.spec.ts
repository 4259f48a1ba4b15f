import { PartitionAssigners, type Consumer, type ConsumerConfig } from 'kafkajs';
import { expect, onTestFinished, test } from 'vitest';
import { ASSIGNER_NAME, subscriptionAssigner } from '#src/kafka/subscription-assigner.js';
import { until } from 'nestjs-kafka-idempotency/testing';
import { eventHandler, writeEffect } from './kit/handlers.js';
import { testService, testWorld } from './kit/in-test.js';
import type { World } from './kit/world.js';

/** A member of the group that is not our service, and the ids of the events it got. */
async function member(
  world: World,
  topics: string[],
  config: Partial<ConsumerConfig> = {},
): Promise<{ consumer: Consumer; got: string[]; leads: () => boolean }> {
  const consumer = world.kafka.consumer({
    groupId: world.group,
    sessionTimeout: 6000,
    heartbeatInterval: 300,
    maxWaitTimeInMs: 100,
    ...config,
  });
  const got: string[] = [];
  let isLeader: boolean | undefined;
  consumer.on(consumer.events.GROUP_JOIN, ({ payload }) => (isLeader = payload.isLeader));
  onTestFinished(() => consumer.disconnect());
  await consumer.connect();
  await consumer.subscribe({ topics, fromBeginning: true });
  await consumer.run({ eachMessage: async ({ message }) => void got.push(String(message.headers?.['event-id'])) });
  await until(() => isLeader !== undefined, { what: 'the other member’s first join' });
  return { consumer, got, leads: () => isLeader === true };
}

const protocolOf = async (world: World): Promise<string | undefined> =>
  (await world.admin.describeGroups([world.group])).groups[0]?.protocol;

test('a deploy that adds a topic: it is read at once, while an old member leads', async () => {
  const world = await testWorld();
  const [old, added] = [await world.topic(2), await world.topic(2)];
  const before = await member(world, [old], {
    partitionAssigners: [subscriptionAssigner(() => []), PartitionAssigners.roundRobin],
  });
  const handlers = [old, added].map((topic) =>
    eventHandler(topic, ({ id }, tools) => writeEffect(tools, id, topic), { consumer: topic }),
  );
  const service = await testService(world, { controllers: handlers });
  await world.send(added, { id: 'b0', partition: 0 }, { id: 'b1', partition: 1 });
  expect((await world.untilEffects(2, added)).toSorted()).toEqual(['b0', 'b1']);
  expect(before.leads()).toBe(true);
  expect(await protocolOf(world)).toBe(ASSIGNER_NAME);
  await world.send(old, { id: 'a0', partition: 0 }, { id: 'a1', partition: 1 });
  await until(() => before.got.length === 2, { what: 'the old member has both partitions of its topic' });
  expect(
    service
      .named('assigned')
      .at(-1)
      ?.partitions.map(({ topic }) => topic),
  ).toEqual([added, added]);
});

test('beside a member that knows round robin only the group works, and turns to ours when that one leaves', async () => {
  const world = await testWorld();
  const topic = await world.topic(2);
  const stock = await member(world, [topic]);
  const handler = eventHandler(topic, ({ id }, tools) => writeEffect(tools, id));
  const service = await testService(world, { controllers: [handler] });
  await until(() => service.named('assigned').length > 0, { what: 'the join of the service' });
  expect(await protocolOf(world)).toBe('RoundRobinAssigner');
  await world.send(topic, { id: 'a0', partition: 0 }, { id: 'a1', partition: 1 });
  await until(async () => stock.got.length === 1 && (await world.effects()).length === 1, { what: 'one event each' });
  await stock.consumer.disconnect();
  await until(() => service.named('assigned').at(-1)?.partitions.length === 2, { what: 'both partitions are ours' });
  expect(await protocolOf(world)).toBe(ASSIGNER_NAME);
});

test('a member that comes gets its share, and the others keep the rest of theirs', async () => {
  const world = await testWorld();
  const topic = await world.topic(6);
  const handler = () => eventHandler(topic, ({ id }, tools) => writeEffect(tools, id));
  const services = [
    await testService(world, { controllers: [handler()] }),
    await testService(world, { controllers: [handler()] }),
  ];
  const last = (index: number) =>
    services[index]
      ?.named('assigned')
      .at(-1)
      ?.partitions.map(({ partition }) => partition);
  const shared = (...counts: number[]) =>
    until(() => counts.every((count, index) => last(index)?.length === count), { what: `shares of ${counts.join()}` });
  await shared(3, 3);
  const before = [last(0)!, last(1)!];
  services.push(await testService(world, { controllers: [handler()] }));
  await shared(2, 2, 2);
  expect(before[0]).toEqual(expect.arrayContaining(last(0)!));
  expect(before[1]).toEqual(expect.arrayContaining(last(1)!));
});

test('the user’s own assigners are taken instead', async () => {
  const world = await testWorld();
  const topic = await world.topic();
  const service = await testService(world, {
    controllers: [eventHandler(topic, () => {})],
    options: {
      kafka: { consumer: { groupId: world.group, partitionAssigners: [PartitionAssigners.roundRobin] } },
    },
  });
  await until(() => service.named('assigned').length > 0, { what: 'the join of the service' });
  expect(await protocolOf(world)).toBe('RoundRobinAssigner');
});
