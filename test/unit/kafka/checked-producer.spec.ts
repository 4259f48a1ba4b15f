import { KafkaJSProtocolError, type Kafka, type Message, type ProducerBatch, type ProducerConfig } from 'kafkajs';
import { expect, test } from 'vitest';
import { CheckedProducer } from '#src/kafka/checked-producer.js';

type Sent = { topic: string; partition: number; message: Message };
type Send = (sent: readonly Sent[]) => readonly Sent[];

/** kafkajs's producers as far as ours uses them, on a wire that does what the test says. `wire` gives what the broker answers for. */
function onWire(wire: Send) {
  const made: { sends: Sent[][]; connected: boolean }[] = [];
  const producer = ({ createPartitioner }: ProducerConfig) => {
    const choose = createPartitioner!();
    const facts = { sends: [] as Sent[][], connected: false };
    made.push(facts);
    return {
      connect: async () => void (facts.connected = true),
      disconnect: async () => void (facts.connected = false),
      sendBatch: async ({ topicMessages = [] }: ProducerBatch) => {
        const partitionMetadata = [0, 1, 2].map((partitionId) => ({ partitionId, leader: 1 })) as never[];
        const sent = topicMessages.flatMap(({ topic, messages }) =>
          messages.map((message) => ({ topic, message, partition: choose({ topic, message, partitionMetadata }) })),
        );
        facts.sends.push(sent);
        return wire(sent).map(({ topic, partition }) => ({ topicName: topic, partition, errorCode: 0 }));
      },
    };
  };
  const checked = new CheckedProducer(() => ({ producer }) as unknown as Kafka, {
    compression: 'none',
    createPartitioner: undefined,
  });
  return { checked, made };
}

const refusal = (type: string) => Object.assign(new Error(type), { name: 'KafkaJSProtocolError', type });

const at = (...partitions: number[]) =>
  partitions.map((partition) => ({ topic: 't', value: `v${partition}`, partition }));

test('what the answer does not show goes again, alone and to the same partition, from the same producer', async () => {
  let sends = 0;
  const { checked, made } = onWire((sent) => (++sends === 1 ? sent.slice(0, 1) : sent));
  await checked.send([...at(0), { topic: 't', value: 'no key', key: null }, ...at(2)]);
  const [first, second] = made[0]!.sends;
  expect(made).toHaveLength(1);
  expect(second!.map(({ message, partition }) => [message.value, partition])).toEqual(
    first!.filter(({ partition }) => partition !== 0).map(({ message, partition }) => [message.value, partition]),
  );
});

test('what never stands in the answer is told as SEND_INCOMPLETE after five tries, with its topic', async () => {
  const { checked, made } = onWire((sent) => sent.filter(({ partition }) => partition !== 1));
  const sending = checked.send(at(0, 1, 2));
  await expect(sending).rejects.toMatchObject({ code: 'SEND_INCOMPLETE', retryable: true });
  await expect(sending).rejects.toThrow(/1 for t/);
  expect(made[0]!.sends.map((sent) => sent.length)).toEqual([3, 1, 1, 1, 1]);
});

test('B68 a producer that is stuck is thrown away: each failure is told, and the next send comes from a new one', async () => {
  let sends = 0;
  const { checked, made } = onWire((sent) => {
    if (++sends <= 3) throw new KafkaJSProtocolError(refusal('OUT_OF_ORDER_SEQUENCE_NUMBER'));
    return sent;
  });
  for (const _ of [1, 2, 3]) {
    await expect(checked.send(at(0))).rejects.toMatchObject({ code: 'BROKER_UNAVAILABLE', retryable: true });
  }
  await checked.send(at(0));
  expect(made.map(({ sends: its }) => its.length)).toEqual([1, 1, 1, 1]);
  expect(made.map(({ connected }) => connected)).toEqual([false, false, false, true]);
  await checked.close();
  expect(made.at(-1)!.connected).toBe(false);
});

test('sends do not overlap, whatever becomes of the one before', async () => {
  const order: string[] = [];
  const { checked } = onWire((sent) => {
    order.push(String(sent[0]!.message.value));
    if (order.length === 1) throw new Error('lost');
    return sent;
  });
  const sends = at(0, 1, 2).map((message) => checked.send([message]));
  expect((await Promise.allSettled(sends)).map(({ status }) => status)).toEqual(['rejected', 'fulfilled', 'fulfilled']);
  expect(order).toEqual(['v0', 'v1', 'v2']);
});

test.each(['MESSAGE_TOO_LARGE', 'RECORD_LIST_TOO_LARGE'])(
  '%s of the broker is MESSAGE_TOO_LARGE, not retryable',
  async (type) => {
    const { checked } = onWire(() => {
      throw new Error('wrapped', { cause: refusal(type) });
    });
    await expect(checked.send(at(0))).rejects.toMatchObject({ code: 'MESSAGE_TOO_LARGE', retryable: false });
  },
);

test('what kafkajs cannot write is told as it is: no outage', async () => {
  const fault = new TypeError('a header is no text');
  const { checked } = onWire(() => {
    throw new Error('wrapped', { cause: fault });
  });
  await expect(checked.send(at(0))).rejects.toBe(fault);
});

test('nothing is sent after close', async () => {
  const { checked, made } = onWire((sent) => sent);
  await checked.close();
  await expect(checked.send(at(0))).rejects.toMatchObject({ code: 'BROKER_UNAVAILABLE' });
  expect(made).toEqual([]);
});
