import { partitionKey, type TopicPartition } from './positions.js';

/** A member of the group: the topics it reads, and the partitions it says it has. */
export interface Member {
  readonly memberId: string;
  readonly topics: readonly string[];
  readonly owned: readonly TopicPartition[];
}

/**
 * Which member gets which partition, for a group whose members read different topics (a deploy that adds one):
 * - each partition goes to one member that reads its topic; nobody reads it: to none;
 * - members that read the same topics differ by at most one partition, over all topics together;
 * - what a member has it keeps, unless that balance needs it elsewhere;
 * - the same input, in whatever order, gives the same answer.
 */
export function assignPartitions(
  members: readonly Member[],
  partitionsByTopic: ReadonlyMap<string, readonly number[]>,
): Map<string, TopicPartition[]> {
  const shares = members.map((member) => new Share(member)).toSorted(byMemberId);
  const partitions = readPartitions(shares, partitionsByTopic);
  const owners = ownersOf(shares, partitions);
  for (const place of partitions) owners.get(partitionKey(place))?.add(place);
  for (const place of partitions) {
    if (!owners.has(partitionKey(place))) leastOf(readersOf(place, shares), place.topic).add(place);
  }
  while (balance(partitions, shares));
  return new Map(shares.map(({ memberId, partitions: given }) => [memberId, given]));
}

/** What one member has so far. */
class Share {
  readonly memberId: string;
  readonly topics: ReadonlySet<string>;
  readonly owned: readonly TopicPartition[];
  readonly #given = new Map<string, TopicPartition>();
  readonly #ofTopic = new Map<string, number>();

  constructor({ memberId, topics, owned }: Member) {
    this.memberId = memberId;
    this.topics = new Set(topics);
    this.owned = owned;
  }

  get size(): number {
    return this.#given.size;
  }
  get partitions(): TopicPartition[] {
    return [...this.#given.values()].toSorted(byPlace);
  }
  countOf(topic: string): number {
    return this.#ofTopic.get(topic) ?? 0;
  }
  has(place: TopicPartition): boolean {
    return this.#given.has(partitionKey(place));
  }
  add(place: TopicPartition): void {
    this.#given.set(partitionKey(place), place);
    this.#ofTopic.set(place.topic, this.countOf(place.topic) + 1);
  }
  remove(place: TopicPartition): void {
    this.#given.delete(partitionKey(place));
    this.#ofTopic.set(place.topic, this.countOf(place.topic) - 1);
  }
}

/** Those that somebody reads, topics of few readers first: they have the least choice. */
function readPartitions(
  shares: readonly Share[],
  partitionsByTopic: ReadonlyMap<string, readonly number[]>,
): TopicPartition[] {
  return [...partitionsByTopic]
    .map(([topic, numbers]) => ({ topic, numbers, readers: shares.filter(({ topics }) => topics.has(topic)).length }))
    .filter(({ readers }) => readers > 0)
    .toSorted((a, b) => a.readers - b.readers || (a.topic < b.topic ? -1 : 1))
    .flatMap(({ topic, numbers }) =>
      numbers.toSorted((a, b) => a - b).map((partition): TopicPartition => ({ topic, partition })),
    );
}

/** Who says it has a partition and may. Two can say so: one of them has slept over a rebalance. */
function ownersOf(shares: readonly Share[], partitions: readonly TopicPartition[]): Map<string, Share> {
  const existing = new Set(partitions.map(partitionKey));
  const owners = new Map<string, Share>();
  for (const share of shares) {
    for (const place of share.owned) {
      const key = partitionKey(place);
      if (share.topics.has(place.topic) && existing.has(key) && !owners.has(key)) owners.set(key, share);
    }
  }
  return owners;
}

/** Moves partitions to readers that have at least two fewer; true if one moved. Each move lessens the sum of squares, so this ends. */
function balance(partitions: readonly TopicPartition[], shares: readonly Share[]): boolean {
  let moved = false;
  for (const place of partitions) {
    const readers = readersOf(place, shares);
    const [from, to] = [readers.find((share) => share.has(place))!, leastOf(readers, place.topic)];
    if (from.size - to.size < 2) continue;
    from.remove(place);
    to.add(place);
    moved = true;
  }
  return moved;
}

function readersOf({ topic }: TopicPartition, shares: readonly Share[]): Share[] {
  return shares.filter(({ topics }) => topics.has(topic));
}

/** The one with the fewest partitions; of several, the one with the fewest of this topic. */
function leastOf(readers: readonly Share[], topic: string): Share {
  return readers.reduce((least, share) => {
    const difference = share.size - least.size || share.countOf(topic) - least.countOf(topic);
    return difference < 0 ? share : least;
  });
}

function byPlace(a: TopicPartition, b: TopicPartition): number {
  return a.topic === b.topic ? a.partition - b.partition : a.topic < b.topic ? -1 : 1;
}

function byMemberId(a: Share, b: Share): number {
  return a.memberId < b.memberId ? -1 : 1;
}
