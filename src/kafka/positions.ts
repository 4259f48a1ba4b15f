export interface TopicPartition {
  readonly topic: string;
  readonly partition: number;
}

/** An offset of one partition: of a commit, the next one to read. */
export interface PartitionOffset extends TopicPartition {
  readonly offset: bigint;
}

/** One string per partition, for maps. */
export function partitionKey({ topic, partition }: TopicPartition): string {
  return `${partition}/${topic}`;
}

/** The shape kafkajs groups partitions in. */
export function byTopic<T extends TopicPartition, R>(
  places: readonly T[],
  each: (place: T) => R,
): { topic: string; partitions: R[] }[] {
  const topics = new Map<string, R[]>();
  for (const place of places) {
    const partitions = topics.get(place.topic);
    if (partitions === undefined) topics.set(place.topic, [each(place)]);
    else partitions.push(each(place));
  }
  return [...topics].map(([topic, partitions]) => ({ topic, partitions }));
}
