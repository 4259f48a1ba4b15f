import type { Message, PartitionMetadata, RecordMetadata } from 'kafkajs';
import { describe, expect, it } from 'vitest';
import { PartitionChoice } from '#src/kafka/partition-choice.js';

const partitions = (count: number): PartitionMetadata[] =>
  Array.from({ length: count }, (_, partitionId) => ({
    partitionId,
    partitionErrorCode: 0,
    leader: 1,
    replicas: [1],
    isr: [1],
  }));

const partitioned = (choice: PartitionChoice, count: number) => {
  const partitioner = choice.partitioner();
  return (message: Message) => partitioner({ topic: 't', partitionMetadata: partitions(count), message });
};

const stored = (...numbers: number[]): RecordMetadata[] =>
  numbers.map((partition) => ({ topicName: 't', partition, errorCode: 0, baseOffset: '7' }));

describe('B67 a key goes to the partition that Java producers give it', () => {
  // What org.apache.kafka.common.utils.Utils.toPositive(murmur2(key)) % partitions gives.
  const table: [key: string | Buffer, of12: number, of15: number][] = [
    ['100:48069', 9, 12],
    ['TT0124', 10, 10],
    ['', 9, 6],
    [Buffer.from([0xff, 0x00, 0xfe, 0x80]), 8, 2],
    ['Grüße', 3, 9],
  ];
  it.each(table)('%j', (key, of12, of15) => {
    const choice = new PartitionChoice();
    expect(partitioned(choice, 12)({ key, value: null })).toBe(of12);
    expect(partitioned(choice, 15)({ key, value: null })).toBe(of15);
    expect(partitioned(choice, 12)({ key: Buffer.from(key), value: null })).toBe(of12);
  });

  it('messages without a key take turns', () => {
    const choose = partitioned(new PartitionChoice(), 3);
    const chosen = [1, 2, 3].map(() => choose({ key: null, value: 'x' }));
    expect(new Set(chosen)).toEqual(new Set([0, 1, 2]));
  });

  it('the partition a message names wins, over a partitioner of the user too', () => {
    const choice = new PartitionChoice(() => () => 5);
    expect(partitioned(choice, 12)({ key: '100:48069', value: null, partition: 2 })).toBe(2);
    expect(partitioned(choice, 12)({ key: '100:48069', value: null })).toBe(5);
  });
});

describe('what an answer shows', () => {
  it('a message keeps its partition however often it is sent', () => {
    const choose = partitioned(new PartitionChoice(), 12);
    const message = { key: null, value: 'x' };
    expect(new Set([1, 2, 3, 4].map(() => choose(message))).size).toBe(1);
  });

  it('messages of partitions that are not in it are missing', () => {
    const choice = new PartitionChoice();
    const messages = [0, 1, 2].map((partition) => ({ value: 'x', partition }));
    messages.forEach(partitioned(choice, 3));
    expect(choice.missing('t', messages, stored(0, 1, 2))).toEqual([]);
    expect(choice.missing('t', messages, stored(0, 2))).toEqual([messages[1]]);
    expect(choice.missing('t', messages, [])).toEqual(messages);
  });

  it('a partition with an error, one of another topic, and a message never given a partition are missing', () => {
    const choice = new PartitionChoice();
    const message = { value: 'x', partition: 0 };
    partitioned(choice, 1)(message);
    const [answer] = stored(0) as [RecordMetadata];
    expect(choice.missing('t', [message], [{ ...answer, errorCode: 7 }])).toEqual([message]);
    expect(choice.missing('t', [message], [{ ...answer, topicName: 'u' }])).toEqual([message]);
    expect(choice.missing('t', [{ value: 'y' }], stored(0))).toHaveLength(1);
  });
});
