import { Logger } from '@nestjs/common';
import { partitionKey, type TopicPartition } from '../kafka/positions.js';
import type { IdempotencyError } from '../shared/errors.js';
import type { EmitEvent } from '../shared/events.js';
import type { PartitionParking } from '../shared/parking.js';
import { startOf } from './anchor.js';
import type { PlacedOpening } from './anchor-reader.js';
import type { AssignedTransactions } from './assigned-transactions.js';
import { Lane, type LaneParts } from './lane.js';
import { OffsetLedger } from './offset-ledger.js';

export interface AssignedLanesParts extends Pick<LaneParts, 'delivery' | 'groups' | 'probe' | 'keys'> {
  readonly groupId: string;
  readonly emit: EmitEvent;
  readonly transactions: AssignedTransactions;
  /** Lanes of earlier assignments that may still be working, by partition. */
  readonly endings: Map<string, Promise<void>>;
}

/** The lanes of one membership, each from its opening to its death, and what is told of both. */
export class AssignedLanes {
  readonly #logger = new Logger('IdempotentKafkaServer');
  readonly #byPlace = new Map<string, Lane>();

  constructor(
    private readonly parts: AssignedLanesParts,
    private readonly host: LaneParts['host'],
  ) {}

  get all(): readonly Lane[] {
    return [...this.#byPlace.values()];
  }

  of(place: TopicPartition): Lane | undefined {
    return this.#byPlace.get(partitionKey(place));
  }

  /** `committed`: what the group's offset is known to be. */
  open({
    place,
    anchor,
    parking,
    committed,
  }: PlacedOpening & { parking: PartitionParking; committed: bigint | undefined }): Lane {
    const { delivery, groups, probe, keys, endings } = this.parts;
    const key = partitionKey(place);
    const lane = new Lane({
      place,
      transactions: this.parts.transactions.needed(place),
      ledger: new OffsetLedger(startOf(anchor), committed),
      host: this.host,
      delivery,
      groups,
      probe,
      keys,
      parking,
      predecessor: endings.get(key) ?? Promise.resolve(),
    });
    endings.set(key, lane.ended);
    this.#byPlace.set(key, lane);
    lane.admit();
    return lane;
  }

  /** They die: what they are doing may end, and nothing of it is committed by this membership. */
  drop(lanes: readonly Lane[], reason: IdempotencyError): void {
    if (lanes.length === 0) return;
    for (const lane of lanes) {
      lane.die(reason);
      void lane.unmark();
      this.#byPlace.delete(partitionKey(lane));
    }
    const partitions = lanes.map(({ topic, partition }) => ({ topic, partition }));
    this.parts.emit({ name: 'revoked', groupId: this.parts.groupId, partitions });
  }

  tellAssigned(memberId: string): void {
    const { groupId, emit } = this.parts;
    const partitions = this.all.map((lane) => ({
      topic: lane.topic,
      partition: lane.partition,
      offset: lane.ledger.committable.toString(),
    }));
    emit({ name: 'assigned', groupId, memberId, partitions });
    const shown = partitions.map(({ topic, partition, offset }) => `${topic}[${partition}]@${offset}`).join(' ');
    this.#logger.log(`Group ${groupId}: ${partitions.length === 0 ? 'no partition assigned' : `assigned ${shown}`}`);
  }
}
