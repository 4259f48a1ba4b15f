import { Logger } from '@nestjs/common';
import { IdempotencyError } from '../shared/errors.js';
import type { FetchedBatch, FilteredBatch, GroupClient, UndecodableBatch } from '../kafka/group-client.js';
import { partitionKey } from '../kafka/positions.js';
import type { Lane } from './lane.js';

export interface FetchFlowParts {
  readonly client: GroupClient;
  readonly lanes: () => Iterable<Lane>;
  readonly buffer: { readonly records: number; readonly bytes: number };
  readonly isPaused: (topic: string) => boolean;
  /** Our own dead-letter topic: there alone `dead-letter-*` headers are what they say. */
  readonly deadLetterTopic: string | undefined;
  /** The lane's position is not in the log any more, or so it seems. Told once; nothing of it is fetched until {@link FetchFlow.restart}. */
  readonly lostPosition: (lane: Lane) => void;
}

const DEAD_LETTER = 'dead-letter-';
/** So many batches in a row that do not continue the lane are no fetch that was under way over a join. */
const DOUBTFUL = 3;

/**
 * What is fetched goes into the lanes:
 * - a batch counts only if it begins where its lane ends; a fetch that was under way over a join may bring an older or newer position;
 * - fetching of a partition pauses while its lane, or all together, hold more than the buffer, and resumes below half of it.
 */
export class FetchFlow {
  readonly #logger = new Logger('IdempotentKafkaServer');
  readonly #doubted = new Map<string, string>();
  readonly #refusals = new Map<string, number>();
  readonly #lost = new Set<string>();

  constructor(private readonly parts: FetchFlowParts) {}

  /** true: the batch is in the lane. */
  take(batch: FetchedBatch, lane: Lane): boolean {
    const { client, buffer } = this.parts;
    if (batch.fetchedOffset !== lane.ledger.next) {
      this.#refuse(lane);
      return false;
    }
    if (batch.topic !== this.parts.deadLetterTopic) dropForged(batch);
    lane.accept(batch);
    this.forget(lane);
    if (lane.queued >= buffer.records || this.#bufferedBytes() >= buffer.bytes) {
      lane.full = true;
      client.pause([lane]);
    }
    return true;
  }

  /** kafkajs has moved behind the batch already. One that does not begin where the lane ends is believed only when it comes again after a seek. */
  skip(batch: FilteredBatch, lane: Lane): boolean {
    const key = partitionKey(lane);
    const begins = batch.firstOffset ?? batch.lastOffset;
    const span = `${begins}-${batch.lastOffset} at ${lane.ledger.next}`;
    if (begins !== lane.ledger.next && this.#doubted.get(key) !== span) {
      this.#doubted.set(key, span);
      this.#seek(lane);
      return false;
    }
    this.#doubted.delete(key);
    lane.ledger.cover(batch.lastOffset + 1n);
    return true;
  }

  /** Nothing of it can be given to anybody, parking included, and nothing is skipped: the partition stops in front of it. */
  block({ position, firstOffset, code, detail }: UndecodableBatch, lane: Lane): void {
    if (position !== lane.ledger.next) return this.#refuse(lane);
    const { topic, partition } = lane;
    const message = `The batch at offset ${firstOffset} of ${topic}[${partition}] cannot be read, so the partition stops in front of it: ${detail}`;
    const error = new IdempotencyError(code, message, { facts: { topic, partition, offset: position.toString() } });
    lane.stopBehind(error);
    this.#logger.error(error.message);
    this.parts.client.pause([lane]);
  }

  /** The lane begins no further record; what stands in front of it stays there. */
  stop(lane: Lane, error: IdempotencyError): void {
    if (lane.stopped !== undefined) return;
    lane.stopped = error;
    this.#logger.error(error.message);
    this.parts.client.pause([lane]);
  }

  /** Begins anew at the lane's position, once it is resumed. */
  restart(lane: Lane): void {
    this.forget(lane);
    this.#seek(lane);
  }

  /** Whether nobody knows yet where the lane is to go on. */
  isLost(lane: Lane): boolean {
    return this.#lost.has(partitionKey(lane));
  }

  /** Fetches again what has room and is neither stopped nor paused by the user. */
  resume(lanes: readonly Lane[]): void {
    const wanted = lanes.filter(
      (lane) =>
        !lane.isBlocked &&
        !this.isLost(lane) &&
        !this.parts.isPaused(lane.topic) &&
        (!lane.full || this.#hasRoom(lane)),
    );
    for (const lane of wanted) lane.full = false;
    if (wanted.length > 0) this.parts.client.resume(wanted);
  }

  /** What was thought of the lane's batches. */
  forget(lane: Lane): void {
    const key = partitionKey(lane);
    this.#refusals.delete(key);
    this.#doubted.delete(key);
    this.#lost.delete(key);
  }

  #seek(lane: Lane): void {
    this.parts.client.seek({ topic: lane.topic, partition: lane.partition, offset: lane.ledger.next });
  }

  /**
   * Once is a fetch that was under way over a join; again and again means that the offset is gone. Then kafkajs would write over the group's offset with
   * each further fetch, as fast as the broker answers, so there is none.
   */
  #refuse(lane: Lane): void {
    const key = partitionKey(lane);
    const refusals = (this.#refusals.get(key) ?? 0) + 1;
    this.#refusals.set(key, refusals);
    this.#seek(lane);
    if (refusals < DOUBTFUL) return;
    this.#lost.add(key);
    this.parts.client.pause([lane]);
    this.parts.lostPosition(lane);
  }

  #hasRoom(lane: Lane): boolean {
    if (lane.isIdle) return true; // however much the others hold, each partition goes on
    return lane.queued < this.parts.buffer.records / 2 && this.#bufferedBytes() < this.parts.buffer.bytes / 2;
  }

  #bufferedBytes(): number {
    let sum = 0;
    for (const lane of this.parts.lanes()) sum += lane.queuedBytes;
    return sum;
  }
}

/** Anyone may write such headers, so from any other topic they say nothing. The objects are kafkajs's, made for this fetch. */
function dropForged({ messages }: FetchedBatch): void {
  for (const { headers } of messages)
    for (const name in headers) if (name.startsWith(DEAD_LETTER)) delete headers[name];
}
