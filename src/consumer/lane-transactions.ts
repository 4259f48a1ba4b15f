import { setTimeout as sleep } from 'node:timers/promises';
import type { ClusterReader } from '../kafka/cluster-reader.js';
import { partitionKey, type TopicPartition } from '../kafka/positions.js';
import type { TransactionalProducer } from '../kafka/transactional-producer.js';
import type { DeliveryInProgress } from '../shared/delivery.js';
import { IdempotencyError } from '../shared/errors.js';
import { eventAt, type EmitEvent } from '../shared/events.js';
import type { SentMessage } from '../shared/kafka-sends.js';
import type { SharedEnd } from '../shared/shared-transaction.js';
import type { OffsetLedger } from './offset-ledger.js';

const LOOK_AGAIN_MS = 250;

export interface LaneTransactionsParts {
  readonly place: TopicPartition;
  readonly groupId: string;
  readonly producer: TransactionalProducer;
  readonly reader: Pick<ClusterReader, 'positions'>;
  readonly emit: EmitEvent;
}

/** The lane they are made for. */
export interface TransactionalLane {
  readonly ledger: OffsetLedger;
  readonly isDead: boolean;
  /** Somebody else has moved the group's offset: it has to begin anew where that stands. */
  outrun(): void;
}

/**
 * The Kafka transactions of one input partition: what its handlers have published, and the group's offset, together or not at all.
 * - Nothing is committed but by a producer that was fenced, after which the group's offset was read and was where the lane stands. So whoever commits has seen all commits before
 *   its own, and whoever was fenced since can commit nothing.
 * - The offset of this partition is written in no other way: a commit beside them might set it back.
 * - After an error the same is done again, and the offset tells what became of the transaction.
 */
export class LaneTransactions {
  #last: Promise<unknown> = Promise.resolve();
  /** How often it was fenced here. What began before the last time has lost its producer. */
  #fences = 0;

  constructor(private readonly parts: LaneTransactionsParts) {}

  /** Ends what any earlier producer had begun. The group's offset is to be read after it. */
  async fence(): Promise<void> {
    this.#fences += 1;
    await this.parts.producer.fence();
  }

  /** What these deliveries have published, up to this offset. `unknown`: they are to run again, if the lane lives. Never rejects. */
  commit(deliveries: readonly DeliveryInProgress[], offset: bigint, lane: TransactionalLane): Promise<SharedEnd> {
    return this.#inTurn(async () => {
      const messages = deliveries.flatMap(({ sends }) => sends?.close() ?? []);
      const ended = await this.#write(messages, offset, lane);
      if (ended.kind === 'committed')
        for (const delivery of deliveries) this.parts.emit(eventAt('processed', delivery));
      return ended;
    });
  }

  /** Writes the offset where nothing was published for it: the first position, parked records, places without a record. Never rejects. */
  flush(lane: TransactionalLane): Promise<void> {
    return this.#inTurn(async () => {
      const { committable, committed } = lane.ledger;
      if (!lane.isDead && (committed === undefined || committable > committed))
        await this.#write([], committable, lane);
    });
  }

  close(): void {
    this.parts.producer.close();
  }

  #inTurn<T>(work: () => Promise<T>): Promise<T> {
    const done = this.#last.then(work);
    this.#last = done;
    return done;
  }

  async #write(messages: readonly SentMessage[], offset: bigint, lane: TransactionalLane): Promise<SharedEnd> {
    if (lane.isDead) return { kind: 'unknown', error: lost() };
    const { place, producer, emit } = this.parts;
    const fence = this.#fences;
    const told = [{ ...place, offset: offset.toString() }];
    const onSent = () => emit({ name: 'committing', offsets: told });
    const ended = await producer.commit({ messages, offset: { ...place, offset }, onSent }).then(
      (): SharedEnd => ({ kind: 'committed' }),
      (error: unknown) => this.#findOut(error, { offset, fence, lane }),
    );
    if (ended.kind === 'committed') {
      lane.ledger.commitAcknowledged(offset);
      emit({ name: 'committed', offsets: told });
    }
    return ended;
  }

  async #findOut(
    error: unknown,
    attempt: { readonly offset: bigint; readonly fence: number; readonly lane: TransactionalLane },
  ): Promise<SharedEnd> {
    const { offset, lane } = attempt;
    // Not if a join has fenced meanwhile, and read where a lane goes on: that lane would not know of what came before this fence.
    for (let { fence } = attempt; !lane.isDead && fence === this.#fences; fence += 1) {
      try {
        const committed = await this.#fencedOffset();
        if (lane.isDead) break;
        if (committed === offset) return { kind: 'committed' };
        if (committed !== lane.ledger.committed) lane.outrun();
        else if (!IdempotencyError.is(error, 'BROKER_UNAVAILABLE')) return { kind: 'refused', error, isOutage: false };
        return { kind: 'unknown', error };
      } catch {
        await sleep(LOOK_AGAIN_MS); // the brokers are away: that is told by what else needs them
      }
    }
    return { kind: 'unknown', error };
  }

  async #fencedOffset(): Promise<bigint | undefined> {
    const { place, groupId, reader } = this.parts;
    await this.fence();
    const { committed } = await reader.positions(groupId, [place]);
    return committed.get(partitionKey(place));
  }
}

function lost(): IdempotencyError {
  return new IdempotencyError('PARTITION_LOST', 'The partition was lost before what was made of its records was sent', {
    retryable: true,
  });
}
