import { AssignerProtocol, type Cluster } from 'kafkajs';
import { expect, test } from 'vitest';
import { subscriptionAssigner } from '#src/kafka/subscription-assigner.js';

const config = (known: Record<string, number>) => {
  const partitions = (topic: string) =>
    Array.from({ length: known[topic] ?? 0 }, (_, partitionId) => ({ partitionId }));
  const cluster = { findTopicPartitionMetadata: partitions } as unknown as Cluster;
  return { cluster, groupId: 'g', logger: {} as never };
};

test('what a member has travels to the leader, who leaves it there', async () => {
  const assigner = subscriptionAssigner(() => [{ topic: 'a', partition: 1 }])(config({ a: 2 }));
  const newcomer = subscriptionAssigner(() => [])(config({ a: 2 }));
  const members = [
    { memberId: '1', memberMetadata: newcomer.protocol({ topics: ['a'] }).metadata },
    { memberId: '2', memberMetadata: newcomer.protocol({ topics: ['a'] }).metadata },
    { memberId: '3', memberMetadata: assigner.protocol({ topics: ['a'] }).metadata },
  ];
  const assigned = await assigner.assign({ members, topics: ['a'] });
  const found = assigned.map(({ memberId, memberAssignment }) => [
    memberId,
    AssignerProtocol.MemberAssignment.decode(memberAssignment)?.assignment,
  ]);
  expect(found).toEqual([
    ['1', { a: [0] }],
    ['2', {}],
    ['3', { a: [1] }],
  ]);
});

const foreign = async (metadata: () => unknown) => {
  let refreshed = 0;
  const own = config({ a: 1 });
  const cluster = {
    ...own.cluster,
    metadata: async () => metadata(),
    refreshMetadata: async () => void (refreshed += 1),
  };
  const assigner = subscriptionAssigner(() => [])({ ...own, cluster: cluster as never });
  const members = ['a', 'b'].map((topic) => {
    return { memberId: topic, memberMetadata: assigner.protocol({ topics: [topic] }).metadata };
  });
  const assigned = await assigner.assign({ members, topics: ['a'] });
  const found = assigned.map(
    ({ memberAssignment }) => AssignerProtocol.MemberAssignment.decode(memberAssignment)?.assignment,
  );
  return { found, refreshed };
};

test('a topic the leader does not read is asked for, and its own metadata is read anew behind that', async () => {
  const topicMetadata = [{ topic: 'b', partitionMetadata: [{ partitionId: 0 }, { partitionId: 1 }] }];
  expect(await foreign(() => ({ topicMetadata }))).toEqual({ found: [{ a: [0] }, { b: [0, 1] }], refreshed: 1 });
});

test('a topic that another member reads and that is gone does not keep this one from leading', async () => {
  const gone = () => {
    throw Object.assign(new Error('gone'), { type: 'UNKNOWN_TOPIC_OR_PARTITION' });
  };
  expect(await foreign(gone)).toEqual({ found: [{ a: [0] }, {}], refreshed: 1 });
});

test('brokers that do not answer fail the join, or the topic would be read by nobody until the next one', async () => {
  await expect(foreign(() => null)).rejects.toThrow(/no broker tells the partitions of b/);
});

test.each([
  ['no bytes', Buffer.alloc(0)],
  ['no JSON', Buffer.from('{')],
  ['other JSON', Buffer.from('{"a":1}')],
  ['places without partitions', Buffer.from('[{"topic":"a"}]')],
])('user data that holds %s is no claim, and the member gets its share', async (_, userData) => {
  const assigner = subscriptionAssigner(() => [])(config({ a: 1 }));
  const memberMetadata = AssignerProtocol.MemberMetadata.encode({ version: 1, topics: ['a'], userData });
  const [assigned] = await assigner.assign({ members: [{ memberId: '1', memberMetadata }], topics: ['a'] });
  expect(AssignerProtocol.MemberAssignment.decode(assigned!.memberAssignment)?.assignment).toEqual({ a: [0] });
});
