import { IdempotencyError } from '../shared/errors.js';
import type { PartitionParking } from '../shared/parking.js';
import type { TopicPartition } from '../kafka/positions.js';
import type { ConsumedRecord } from './consumed-record.js';
import type { LaneWork, RecordDelivery, Retrying } from './record-delivery.js';

/** What a strand asks of its lane. */
export interface StrandLane extends TopicPartition {
  readonly parking: PartitionParking;
  readonly interrupted: AbortSignal;
  readonly isDead: boolean;
  stopped: IdempotencyError | undefined;
  mayBegin(strand: Strand): boolean;
  /** The next record, if one may begin. */
  begin(strand: Strand): ConsumedRecord | undefined;
  /** Without a settlement: it was interrupted. */
  end(record: ConsumedRecord, settlement: { readonly duplicate: boolean } | undefined): void;
}

/** One of the records that a lane has at work: takes the next that may begin, brings it to its end, and again, for as long as the lane lives. */
export class Strand implements LaneWork {
  retrying: Retrying | undefined;
  #wake: () => void = () => {};
  #work: Promise<unknown> | undefined;

  constructor(
    private readonly lane: StrandLane,
    private readonly delivery: RecordDelivery,
  ) {}

  get topic(): string {
    return this.lane.topic;
  }
  get partition(): number {
    return this.lane.partition;
  }
  get parking(): PartitionParking {
    return this.lane.parking;
  }
  get interrupted(): AbortSignal {
    return this.lane.interrupted;
  }
  get mayBegin(): boolean {
    return this.lane.mayBegin(this);
  }
  get stopped(): IdempotencyError | undefined {
    return this.lane.stopped;
  }
  set stopped(error: IdempotencyError | undefined) {
    this.lane.stopped = error;
  }

  async run(): Promise<void> {
    const { lane } = this;
    while (!lane.isDead) {
      const record = lane.begin(this);
      if (record === undefined) {
        await this.#untilWoken();
        continue;
      }
      const work = this.delivery.deliver(record, this);
      this.#work = work;
      const settlement = await work.catch((error: unknown) => this.#stop(record, error));
      this.#work = undefined;
      lane.end(record, settlement);
    }
  }

  /** Resolves when a delivery may begin, or when the lane is interrupted. */
  async untilMayBegin(): Promise<void> {
    while (!this.mayBegin && !this.interrupted.aborted) await this.#untilWoken();
  }

  /** Resolves when no delivery is running here. */
  async atRest(): Promise<void> {
    await this.#work;
  }

  /** Looks again whether there is something to do. */
  wake(): void {
    this.#wake();
  }

  /** Tells the handler at work to stop. */
  abort(reason: IdempotencyError): void {
    this.delivery.abort(this, reason);
  }

  /** Nothing of ours should throw there. If it does, the record stays in front where health can see it, and the process lives on. */
  #stop(record: ConsumedRecord, cause: unknown): undefined {
    const where = `${this.topic}[${this.partition}]@${record.offset}`;
    this.stopped = new IdempotencyError(
      'HANDLER_FAILED',
      `The partition stops in front of ${where}: its delivery itself failed`,
      { cause },
    );
    return undefined;
  }

  #untilWoken(): Promise<void> {
    return new Promise((resolve) => {
      this.#wake = () => {
        this.#wake = () => {};
        resolve();
      };
    });
  }
}
