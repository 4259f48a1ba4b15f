import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { assignPartitions, type Member } from '#src/kafka/assign-partitions.js';
import { partitionKey, type TopicPartition } from '#src/kafka/positions.js';

const TOPICS = ['a', 'b', 'c', 'd'];

const topicSizes = fc
  .record(Object.fromEntries(TOPICS.map((topic) => [topic, fc.nat({ max: 12 })])))
  .map(
    (sizes) =>
      new Map(Object.entries(sizes).map(([topic, size]) => [topic, Array.from({ length: size }, (_, i) => i)])),
  );

const place = fc.record({ topic: fc.constantFrom(...TOPICS, 'gone'), partition: fc.nat({ max: 14 }) });

const group = fc.uniqueArray(
  fc.record({
    memberId: fc.stringMatching(/^[a-z]{1,3}$/),
    topics: fc.subarray(TOPICS),
    owned: fc.array(place, { maxLength: 8 }),
  }),
  { selector: ({ memberId }) => memberId, maxLength: 8 },
);

const member = (memberId: string, topics: string, owned: TopicPartition[] = []): Member => {
  return { memberId, topics: topics.split(''), owned };
};
const sizes = (topics: Record<string, number>) =>
  new Map(Object.entries(topics).map(([topic, size]) => [topic, Array.from({ length: size }, (_, i) => i)]));
const shown = (assigned: Map<string, TopicPartition[]>) =>
  Object.fromEntries(
    [...assigned].map(([id, places]) => [id, places.map(({ topic, partition }) => `${topic}${partition}`).join(' ')]),
  );

describe('for any group and any topics', () => {
  it('each partition of a topic that is read goes to one member, who reads it; the others to none', () => {
    fc.assert(
      fc.property(group, topicSizes, (members, topics) => {
        const given = [...assignPartitions(members, topics)].flatMap(([memberId, places]) =>
          places.map((each) => ({ ...each, memberId })),
        );
        const read = new Set(members.flatMap((each) => each.topics));
        const owed = [...topics].flatMap(([topic, numbers]) =>
          read.has(topic) ? numbers.map((partition) => partitionKey({ topic, partition })) : [],
        );
        expect(given.map(partitionKey).toSorted()).toEqual(owed.toSorted());
        for (const { topic, memberId } of given) {
          expect(members.find((each) => each.memberId === memberId)!.topics).toContain(topic);
        }
      }),
    );
  });

  it('members that read the same differ by at most one, and nobody has two more than another who could take one', () => {
    fc.assert(
      fc.property(group, topicSizes, (members, topics) => {
        const assigned = assignPartitions(members, topics);
        const unfair = members.flatMap(({ memberId, topics: read }) => {
          const more = assigned.get(memberId)!;
          return members.filter((other) => {
            const could = more.some(({ topic }) => other.topics.includes(topic));
            const same = read.toSorted().join() === other.topics.toSorted().join();
            return (could || same) && more.length - assigned.get(other.memberId)!.length > 1;
          });
        });
        expect(unfair).toEqual([]);
      }),
    );
  });

  it('the order of members and topics makes no difference', () => {
    fc.assert(
      fc.property(group, topicSizes, (members, topics) => {
        const turned = assignPartitions(members.toReversed(), new Map([...topics].toReversed()));
        expect(shown(turned)).toEqual(shown(assignPartitions(members, topics)));
      }),
    );
  });

  it('a group that says it has what it was given keeps it all', () => {
    fc.assert(
      fc.property(group, topicSizes, (members, topics) => {
        const before = assignPartitions(members, topics);
        const again = members.map((each) => ({ ...each, owned: before.get(each.memberId)! }));
        expect(shown(assignPartitions(again, topics))).toEqual(shown(before));
      }),
    );
  });

  it('when one of equal members leaves, the others keep what they have', () => {
    fc.assert(
      fc.property(fc.integer({ min: 2, max: 6 }), topicSizes, (count, topics) => {
        const members = Array.from({ length: count }, (_, i) => member(`m${i}`, 'abcd'));
        const before = assignPartitions(members, topics);
        const left = members.slice(1).map((each) => ({ ...each, owned: before.get(each.memberId)! }));
        const after = assignPartitions(left, topics);
        for (const { memberId, owned } of left) {
          expect(after.get(memberId)!.map(partitionKey)).toEqual(expect.arrayContaining(owned.map(partitionKey)));
        }
      }),
    );
  });
});

describe('for example', () => {
  it('a topic that only the new member reads goes to it, and the old one gets more of the other', () => {
    const assigned = assignPartitions([member('new', 'ab'), member('old', 'a')], sizes({ a: 4, b: 2 }));
    expect(shown(assigned)).toEqual({ new: 'a2 b0 b1', old: 'a0 a1 a3' });
  });

  it('several topics of one partition are spread over the members', () => {
    const members = ['1', '2', '3'].map((id) => member(id, 'abc'));
    expect(shown(assignPartitions(members, sizes({ a: 1, b: 1, c: 1 })))).toEqual({ 1: 'a0', 2: 'b0', 3: 'c0' });
  });

  it('a member that joins gets its share, and no more moves than that', () => {
    const before = assignPartitions([member('1', 'a'), member('2', 'a')], sizes({ a: 6 }));
    const members = ['1', '2'].map((id) => member(id, 'a', before.get(id)));
    const after = assignPartitions([...members, member('3', 'a')], sizes({ a: 6 }));
    const kept = ['1', '2'].map((id) => {
      const had = new Set(before.get(id)!.map(partitionKey));
      return after.get(id)!.filter((each) => had.has(partitionKey(each))).length;
    });
    expect([...after.values()].map(({ length }) => length)).toEqual([2, 2, 2]);
    expect(kept).toEqual([2, 2]);
  });

  it('two that say they have the same partition: one of them gets it', () => {
    const both = [{ topic: 'a', partition: 0 }];
    expect(shown(assignPartitions([member('1', 'a', both), member('2', 'a', both)], sizes({ a: 2 })))).toEqual({
      1: 'a0',
      2: 'a1',
    });
  });

  it('nobody and nothing', () => {
    expect(assignPartitions([], sizes({ a: 3 })).size).toBe(0);
    expect(shown(assignPartitions([member('1', '')], sizes({ a: 3 })))).toEqual({ 1: '' });
  });
});
