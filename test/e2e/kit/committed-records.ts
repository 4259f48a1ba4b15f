import { randomUUID } from 'node:crypto';
import { kafkaClients } from '#src/kafka/kafka-client.js';
import { until } from 'nestjs-kafka-idempotency/testing';
import type { World } from './world.js';

export interface CommittedRecord {
  readonly key: string | undefined;
  readonly value: string | undefined;
  readonly id: string | undefined;
}

/** All of a topic that a consumer sees which reads committed, partition by partition, in order. */
export async function committedRecords(world: World, topic: string): Promise<CommittedRecord[]> {
  const admin = world.kafka.admin(); // one that lives on knows the leaders of before
  await admin.connect();
  const ends = await admin.fetchTopicOffsets(topic);
  const group = `${world.group}.${randomUUID()}`;
  const consumer = kafkaClients({ brokers: world.brokers })().consumer({ groupId: group, maxWaitTimeInMs: 100 });
  const found = ends.map((): CommittedRecord[] => []);
  const read = ends.map(() => 0n);
  await consumer.connect();
  consumer.on(consumer.events.END_BATCH_PROCESS, ({ payload }) => {
    read[payload.partition] = BigInt(payload.lastOffset) + 1n; // behind what is hidden too
  });
  try {
    await consumer.subscribe({ topic, fromBeginning: true });
    await consumer.run({
      autoCommit: false,
      eachBatch: ({ batch }) => {
        for (const { key, value, headers } of batch.messages)
          found[batch.partition]!.push({
            key: key?.toString(),
            value: value?.toString(),
            id: headers?.['event-id']?.toString(),
          });
        return Promise.resolve();
      },
    });
    await until(() => ends.every(({ partition, high }) => read[partition]! >= BigInt(high)), {
      what: `all of ${topic} to be read, which no open transaction may hold up`,
      timeoutMs: 40_000,
    });
  } finally {
    await Promise.all([consumer.disconnect(), admin.disconnect()]);
  }
  return found.flat();
}
