import { Partitioners, type PartitionMetadata } from 'kafkajs';

export const SHARDS = 16;

const choose = Partitioners.DefaultPartitioner();
const all = Array.from({ length: SHARDS }, (_, partitionId) => ({ partitionId, leader: 0 }) as PartitionMetadata);

/** The low four bits of the key's murmur2, as Java computes it: what kafkajs would choose of 16 partitions. */
export function keyShard(key: Buffer): number {
  return choose({ topic: '', partitionMetadata: all, message: { key, value: null } });
}
