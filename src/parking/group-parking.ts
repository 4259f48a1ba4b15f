import { randomUUID } from 'node:crypto';
import type { Parking, PartitionParking } from '../shared/parking.js';
import type { TopicPlace } from '../shared/record.js';
import type { OwnTables } from '../shared/own-tables.js';
import type { DeadLetterCopies } from './dead-letter-copies.js';
import type { HeldKeys } from './held-keys.js';
import { OwnedPartition } from './owned-partition.js';
import { ParkedMemory } from './parked-memory.js';
import { ProcessMark } from './process-mark.js';

// Held keys, and of parked records those that may still come. A discarded row holds nothing, but its record is not run again.
const PARKED = `SELECT p.topic, p.partition, p.consumer, CASE WHEN p.state <> 'discarded' THEN p.hold_key END AS "holdKey", p.record_offset AS "recordOffset", p.record_timestamp AS "recordTimestamp"
FROM unnest($2::text[], $3::integer[], $4::bigint[]) place (topic, partition, "from") JOIN parked_events p ON p.group_id = $1 AND p.topic = place.topic AND p.partition = place.partition
WHERE p.record_offset >= place."from" OR (p.hold_key IS NOT NULL AND p.state <> 'discarded')`;

const OTHERS_MARKS = `SELECT r.topic, r.partition FROM unnest($2::text[], $3::integer[]) place (topic, partition)
JOIN running_records r ON r.group_id = $1 AND r.topic = place.topic AND r.partition = place.partition WHERE r.instance <> $4`;

interface KnownRow extends TopicPlace {
  readonly consumer: string;
  readonly holdKey: Buffer | null;
  readonly recordOffset: string;
  readonly recordTimestamp: Date;
}

/** See {@link Parking}. One per process and group. */
export class GroupParking implements Parking {
  /** Tells this process from the one that left a mark. */
  readonly #instance = randomUUID();

  constructor(
    private readonly parts: {
      readonly groupId: string;
      readonly tables: OwnTables;
      readonly keys: HeldKeys;
      readonly copies: DeadLetterCopies;
    },
  ) {}

  async open(places: readonly (TopicPlace & { readonly from: bigint })[]): Promise<PartitionParking[]> {
    const { tables, groupId } = this.parts;
    const topics = places.map(({ topic }) => topic);
    const partitions = places.map(({ partition }) => partition);
    const from = places.map((place) => place.from.toString());
    const rows = await tables.run<KnownRow>(PARKED, [groupId, topics, partitions, from]);
    const marks = await tables.run<TopicPlace>(OTHERS_MARKS, [groupId, topics, partitions, this.#instance]);
    const suspects = new Set(marks.map(placeName));
    const memories = new Map(places.map((place) => [placeName(place), new ParkedMemory()]));
    for (const row of rows) {
      const record = { offset: BigInt(row.recordOffset), timestamp: row.recordTimestamp };
      memories.get(placeName(row))?.add(row.consumer, { holdKey: row.holdKey, record });
    }
    return places.map((place) => {
      const name = placeName(place);
      return new OwnedPartition({
        ...this.parts,
        memory: memories.get(name)!,
        mark: new ProcessMark(tables, { ...place, groupId }, this.#instance),
        isSuspect: suspects.has(name),
      });
    });
  }
}

function placeName({ topic, partition }: TopicPlace): string {
  return `${topic}/${partition}`;
}
