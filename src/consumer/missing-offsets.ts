import type { Positions } from '../kafka/cluster-reader.js';
import { partitionKey, type TopicPartition } from '../kafka/positions.js';

/** Of these topics, those of which this application has handled events lately, as far as the database knows. */
export type HandledBefore = (topics: readonly string[]) => Promise<ReadonlySet<string>>;

/** Whether the group has an offset in any partition of the topic. Then one in which it has none was added to the topic, and all of it is new. */
export function standsIn(topic: string, { committed, bounds }: Positions): boolean {
  return [...bounds.keys()].some((key) => committed.has(key) && key.endsWith(`/${topic}`));
}

/**
 * Partitions whose offset the group once had, by their keys: it stands nowhere in the topic, there are records, and events of it have been handled. Its
 * offsets were deleted or have expired, or the group has a new name.
 */
export async function forgottenOffsets(
  partitions: readonly TopicPartition[],
  known: Positions,
  handledBefore: HandledBefore,
): Promise<ReadonlySet<string>> {
  const suspects = partitions.filter((place) => {
    const { low, high } = known.bounds.get(partitionKey(place))!; // positions() rejects unless all are there
    return low < high && !standsIn(place.topic, known);
  });
  if (suspects.length === 0) return new Set();
  const topics = await handledBefore([...new Set(suspects.map(({ topic }) => topic))]);
  return new Set(suspects.filter(({ topic }) => topics.has(topic)).map(partitionKey));
}
