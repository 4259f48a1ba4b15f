import { Partitioners, type Kafka, type Producer, type Transaction } from 'kafkajs';
import type { ProducerSettings } from './checked-producer.js';

/**
 * The producer that Nest's `@Ctx()` hands to handlers. A plain one of its own: what a handler sends, and what becomes of it, does not touch the
 * sequence numbers of ours. It connects with its first send.
 */
export function handlerProducer(
  kafka: Kafka,
  { createPartitioner }: Pick<ProducerSettings, 'createPartitioner'>,
): Producer {
  const producer = kafka.producer({
    createPartitioner: createPartitioner ?? Partitioners.DefaultPartitioner,
    allowAutoTopicCreation: false,
  });
  let connected: Promise<void> | undefined;
  const connect = (): Promise<void> =>
    (connected ??= producer.connect().catch((error: unknown) => {
      connected = undefined; // the next send connects anew
      throw error;
    }));
  return {
    ...producer,
    connect,
    send: async (record) => connect().then(() => producer.send(record)),
    sendBatch: async (batch) => connect().then(() => producer.sendBatch(batch)),
    transaction: async (): Promise<Transaction> => connect().then(() => producer.transaction()),
  };
}
