import { Kafka, logLevel } from 'kafkajs';
import { CheckedProducer } from '#src/kafka/checked-producer.js';
import { ClusterReader } from '#src/kafka/cluster-reader.js';
import type { OutboxRoomOptions } from '#src/outbox/outbox-room.js';

export function onBrokers(brokers: string[]): Pick<OutboxRoomOptions, 'newProducer' | 'cluster'> {
  const newKafka = () => new Kafka({ brokers, logLevel: logLevel.NOTHING });
  return {
    newProducer: () => new CheckedProducer(newKafka, { compression: 'none', createPartitioner: undefined }),
    cluster: new ClusterReader(newKafka),
  };
}
