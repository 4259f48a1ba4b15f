import { setTimeout as sleep } from 'node:timers/promises';
import { Logger } from '@nestjs/common';
import type { ClusterReader, Positions } from '../kafka/cluster-reader.js';
import { partitionKey, type TopicPartition } from '../kafka/positions.js';
import type { Parking, PartitionParking } from '../shared/parking.js';
import { anchorOf, startOf, type LanePosition, type Opening } from './anchor.js';
import type { AssignedTransactions } from './assigned-transactions.js';
import { forgottenOffsets, standsIn, type HandledBefore } from './missing-offsets.js';

const RETRY_MS = 250;

export interface AnchorReaderParts {
  readonly reader: ClusterReader;
  readonly groupId: string;
  readonly parking: Parking;
  readonly transactions: AssignedTransactions;
  readonly handledBefore: HandledBefore;
  readonly fromBeginning: boolean;
  readonly offsetOutOfRange: 'earliest' | 'fail';
}

/** Where a partition is to go on. */
export interface PlacedOpening {
  readonly place: TopicPartition;
  readonly anchor: Opening;
}

/** What was read of it besides. */
export interface ReadOpening extends PlacedOpening {
  readonly parking: PartitionParking;
  /** The group has forgotten its offset, though events of the topic were handled before. */
  readonly isForgotten: boolean;
}

/** Reads what has to be known before partitions go on. Each read is tried for as long as it takes, and gives undefined once it is not wanted any more. */
export class AnchorReader {
  readonly #logger = new Logger('IdempotentKafkaServer');
  #trouble: { readonly since: Date; readonly error: unknown } | undefined;

  constructor(private readonly parts: AnchorReaderParts) {}

  /** Why nothing could be read for a while. */
  get trouble(): { readonly since: Date; readonly error: unknown } | undefined {
    return this.#trouble;
  }

  /** Where the group stands. Kafka transactions that an earlier owner has open are ended before. */
  positions(partitions: readonly TopicPartition[], isWanted: () => boolean): Promise<Positions | undefined> {
    return this.#asLongAsItTakes(isWanted, async () => {
      await this.parts.transactions.fence(partitions, isWanted);
      return this.parts.reader.positions(this.parts.groupId, partitions);
    });
  }

  /** Those that begin anew. `mayKeep`: lanes from before the join may go on if the group stands where they do. */
  toOpen(
    partitions: readonly TopicPartition[],
    known: Positions,
    { laneOf, mayKeep }: { laneOf: (place: TopicPartition) => LanePosition | undefined; mayKeep: boolean },
  ): PlacedOpening[] {
    return partitions.flatMap((place) => {
      const key = partitionKey(place);
      const anchor = anchorOf({
        lane: laneOf(place),
        committed: known.committed.get(key),
        bounds: known.bounds.get(key)!, // positions() rejects unless all are there
        isSameMember: mayKeep,
        fromBeginning: this.parts.fromBeginning || standsIn(place.topic, known),
        offsetOutOfRange: this.parts.offsetOutOfRange,
      });
      return anchor.kind === 'keep' ? [] : [{ place, anchor }];
    });
  }

  /** What is parked of them is read after the join, never before: until then their last owner may have parked more. */
  async openings(
    openings: readonly PlacedOpening[],
    known: Positions,
    isWanted: () => boolean,
  ): Promise<ReadOpening[] | undefined> {
    const places = openings.map(({ place }) => place);
    const read = await this.#asLongAsItTakes(isWanted, () =>
      Promise.all([this.#parkedOf(openings), forgottenOffsets(places, known, this.parts.handledBefore)]),
    );
    if (read === undefined) return undefined;
    const [parked, forgotten] = read;
    return openings.map((opening, at) => ({
      ...opening,
      parking: parked[at]!,
      isForgotten: opening.anchor.gap === undefined && forgotten.has(partitionKey(opening.place)),
    }));
  }

  async parkedOf(opening: PlacedOpening, isWanted: () => boolean): Promise<PartitionParking | undefined> {
    return (await this.#asLongAsItTakes(isWanted, () => this.#parkedOf([opening])))?.[0];
  }

  #parkedOf(openings: readonly PlacedOpening[]): Promise<PartitionParking[]> {
    if (openings.length === 0) return Promise.resolve([]);
    return this.parts.parking.open(openings.map(({ place, anchor }) => ({ ...place, from: startOf(anchor) })));
  }

  async #asLongAsItTakes<T>(isWanted: () => boolean, read: () => Promise<T>): Promise<T | undefined> {
    while (isWanted()) {
      try {
        const found = await read();
        this.#trouble = undefined;
        return isWanted() ? found : undefined;
      } catch (error) {
        if (!isWanted()) return undefined; // what a newer read has found counts
        if (this.#trouble === undefined) {
          const message = (error as Error).message;
          this.#logger.warn(
            `What has to be known of the partitions before they go on could not be read, so nothing runs yet and it is tried again: ${message}`,
          );
        }
        this.#trouble = { since: this.#trouble?.since ?? new Date(), error };
        await sleep(RETRY_MS);
      }
    }
    return undefined;
  }
}
