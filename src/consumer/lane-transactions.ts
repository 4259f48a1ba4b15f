import { setTimeout as sleep } from 'node:timers/promises';
import { Logger } from '@nestjs/common';
import { typeOf } from '../kafka/broker-answer.js';
import type { ClusterReader } from '../kafka/cluster-reader.js';
import { partitionKey, type TopicPartition } from '../kafka/positions.js';
import { TooSlow, type TransactionalProducer } from '../kafka/transactional-producer.js';
import type { DeliveryInProgress } from '../shared/delivery.js';
import { IdempotencyError } from '../shared/errors.js';
import { emitAt, type EmitEvent } from '../shared/events.js';
import { noteOf } from '../shared/failed-attempt.js';
import type { SentMessage } from '../shared/kafka-sends.js';
import type { SharedEnd } from '../shared/shared-transaction.js';
import type { OffsetLedger } from './offset-ledger.js';

const LOOK_AGAIN_MS = 250;

/** What the brokers answer about the messages themselves: no other try helps while these are what they are. */
const REFUSALS: readonly unknown[] = [
  'TOPIC_AUTHORIZATION_FAILED',
  'INVALID_TOPIC_EXCEPTION',
  'INVALID_RECORD',
  'INVALID_TIMESTAMP',
  'CORRUPT_MESSAGE',
];

export interface LaneTransactionsParts {
  readonly place: TopicPartition;
  readonly groupId: string;
  readonly producer: TransactionalProducer;
  readonly reader: Pick<ClusterReader, 'positions' | 'existing'>;
  readonly emit: EmitEvent;
}

/** The lane they are made for. */
export interface TransactionalLane {
  readonly ledger: OffsetLedger;
  readonly isDead: boolean;
  /** Somebody else has moved the group's offset: it has to begin anew where that stands. */
  outrun(): void;
}

interface Attempt {
  /** Of how many records. */
  readonly records: number;
  readonly messages: readonly SentMessage[];
  readonly offset: bigint;
  readonly lane: TransactionalLane;
}

/**
 * The Kafka transactions of one input partition: what its handlers have published, and the group's offset, together or not at all.
 * - Nothing is committed but for the one lane that was admitted: after the last fence the group's offset was read, and was where it stands. So whoever commits has seen all
 *   commits before its own, and whoever was fenced since can commit nothing.
 * - The offset of this partition is written in no other way: a commit beside them might set it back.
 * - After an error the same is done again, and the offset tells what became of the transaction.
 */
export class LaneTransactions {
  readonly #logger = new Logger('IdempotentKafkaServer');
  #last: Promise<unknown> = Promise.resolve();
  #isFlushing = false;
  /** How often it was fenced here. */
  #fences = 0;
  #admitted: TransactionalLane | undefined;

  constructor(private readonly parts: LaneTransactionsParts) {}

  /** Ends what any earlier producer had begun. The group's offset is to be read after it, and compared, before a lane is admitted. */
  async fence(): Promise<void> {
    this.#fences += 1;
    this.#admitted = undefined;
    await this.parts.producer.fence();
  }

  /** It stands where the group was, by an offset that was read behind the last fence. */
  admit(lane: TransactionalLane): void {
    this.#admitted = lane;
  }

  /** What these deliveries have published, up to this offset. `unknown`: they are to run again, if the lane lives. Never rejects. */
  commit(deliveries: readonly DeliveryInProgress[], offset: bigint, lane: TransactionalLane): Promise<SharedEnd> {
    return this.#inTurn(async () => {
      const messages = deliveries.flatMap(({ sends }) => sends?.messages ?? []);
      const ended = await this.#write({ records: deliveries.length, messages, offset, lane });
      if (ended.kind === 'committed') for (const delivery of deliveries) emitAt(this.parts.emit, 'processed', delivery);
      return ended;
    });
  }

  /** Writes the offset where nothing was published for it: the first position, parked records, places without a record. Never rejects. */
  async flush(lane: TransactionalLane): Promise<void> {
    if (this.#isFlushing) return;
    this.#isFlushing = true;
    await this.#inTurn(async () => {
      this.#isFlushing = false;
      const { committable, committed } = lane.ledger;
      if (committed === undefined || committable > committed)
        await this.#write({ records: 0, messages: [], offset: committable, lane });
    });
  }

  close(): void {
    this.#admitted = undefined;
    this.parts.producer.close();
  }

  #inTurn<T>(work: () => Promise<T>): Promise<T> {
    const done = this.#last.then(work);
    this.#last = done;
    return done;
  }

  async #write(attempt: Attempt): Promise<SharedEnd> {
    const { messages, offset, lane } = attempt;
    if (lane !== this.#admitted || lane.isDead) return { kind: 'unknown', error: notAdmitted() };
    const { place, producer, emit } = this.parts;
    const fence = this.#fences;
    const told = [{ ...place, offset: offset.toString() }];
    const onSent = () => emit({ name: 'committing', offsets: told });
    const ended = await producer.commit({ messages, offset: { ...place, offset }, onSent }).then(
      (): SharedEnd => ({ kind: 'committed' }),
      (error: unknown) => this.#findOut(error, attempt, fence),
    );
    if (ended.kind === 'committed') {
      lane.ledger.commitAcknowledged(offset);
      emit({ name: 'committed', offsets: told });
    }
    return ended;
  }

  /** `fence`: the one before the attempt. If a join has fenced since, what it reads decides, and this lane is admitted there or dies. */
  async #findOut(error: unknown, attempt: Attempt, fence: number): Promise<SharedEnd> {
    const { offset, lane } = attempt;
    const unknown: SharedEnd = { kind: 'unknown', error };
    for (let own = fence; !lane.isDead && own === this.#fences;) {
      own += 1;
      try {
        const committed = await this.#fencedOffset();
        if (lane.isDead || own !== this.#fences) return unknown;
        if (committed !== offset && committed !== lane.ledger.committed) {
          lane.outrun();
          return unknown;
        }
        this.admit(lane);
        if (committed === offset) return { kind: 'committed' };
        return (await this.#isRefusal(error, attempt))
          ? { kind: 'refused', error: refusal(error), isOutage: false }
          : unknown;
      } catch (again) {
        if (own === fence + 1) this.#tellUnclear(again);
        await sleep(LOOK_AGAIN_MS);
      }
    }
    return unknown;
  }

  async #fencedOffset(): Promise<bigint | undefined> {
    const { place, groupId, reader } = this.parts;
    await this.fence();
    const { committed } = await reader.positions(groupId, [place]);
    return committed.get(partitionKey(place));
  }

  /** The brokers have answered since, so it is not that they were away; it may be that a leader moved. */
  async #isRefusal(error: unknown, { messages, records }: Attempt): Promise<boolean> {
    if (!IdempotencyError.is(error, 'BROKER_UNAVAILABLE') || REFUSALS.includes(typeOf(error))) return true;
    if (error.cause instanceof TooSlow && records > 1) return true; // less of it may be done in time
    const topics = [...new Set(messages.map(({ topic }) => topic))];
    return (await this.parts.reader.existing(topics)).length < topics.length;
  }

  #tellUnclear(error: unknown): void {
    const { topic, partition } = this.parts.place;
    this.#logger.warn(
      `Nobody knows yet how a Kafka transaction of ${topic}[${partition}] ended, so the partition waits: ${noteOf(error, new Date()).message}`,
    );
  }
}

/** The brokers are there, so the event's attempt has failed. */
function refusal(error: unknown): unknown {
  if (!IdempotencyError.is(error, 'BROKER_UNAVAILABLE')) return error;
  const message = `Kafka refuses what the handler has published: ${error.message}. Look whether the topics exist and may be written to, or raise the limits they have`;
  return new IdempotencyError('HANDLER_FAILED', message, { cause: error, retryable: true });
}

function notAdmitted(): IdempotencyError {
  return new IdempotencyError(
    'PARTITION_LOST',
    'The group joins anew, or the partition was lost, so nothing was sent',
    {
      retryable: true,
    },
  );
}
