import { Logger } from '@nestjs/common';
import type { EmitEvent } from '../shared/events.js';
import type { GroupClient } from '../kafka/group-client.js';
import type { PartitionOffset } from '../kafka/positions.js';
import type { Lane } from './lane.js';

/** Makes everything durable that was acknowledged before the call. Rejects also if the server crashed before: then some of it may be gone. */
export type Barrier = () => Promise<void>;

/**
 * The one that writes a membership's offsets:
 * - all lanes in one request, one request in flight, each a single attempt: what is refused is not retried but found again as a duplicate;
 * - only lanes that are alive when the request leaves, so only partitions that are ours then;
 * - a commit that covers a transaction that may not be durable yet waits for a barrier: one of `durability: 'window'`, or whoever's row made a record a duplicate;
 * - only {@link commitNow} may leave beside a request in flight, and carries nothing a finished barrier does not cover.
 */
export class OffsetCommitter {
  readonly #logger = new Logger('IdempotentKafkaServer');
  #inFlight: Promise<void> | undefined;
  #again = false;
  #blocked = false;
  #refusedSince: number | undefined;

  constructor(
    private readonly client: GroupClient,
    private readonly lanes: () => Iterable<Lane>,
    private readonly barrier: Barrier,
    private readonly emit: EmitEvent,
  ) {}

  /** Commits what is finished, after the request in flight if there is one. Resolves when nothing more is to be written; never rejects. */
  flush(): Promise<void> {
    if (this.#inFlight !== undefined) {
      this.#again = true;
      return this.#inFlight;
    }
    return (this.#inFlight = this.#run().finally(() => {
      this.#inFlight = undefined;
    }));
  }

  /** The last commit of a generation: leaves synchronously. Until {@link open}, no other follows. */
  commitNow(): void {
    this.block();
    const offsets = [...this.#unwritten()];
    if (offsets.length > 0) void this.#write(offsets);
  }

  /** Nothing is written until {@link open}. */
  block(): void {
    this.#blocked = true;
    this.#refusedSince = undefined;
  }

  /** A new generation has begun, and its lanes stand where the group does. */
  open(): void {
    this.#blocked = false;
    this.#refusedSince = undefined;
  }

  /** For how long every commit of this generation has been refused; by performance.now(). */
  refusedMs(now: number): number {
    return this.#refusedSince === undefined ? 0 : now - this.#refusedSince;
  }

  async #run(): Promise<void> {
    do {
      this.#again = false;
      if (this.#blocked) return;
      await this.#secure();
      if (this.#blocked) return; // a rebalance began meanwhile: commitNow has written what was safe
      const offsets = [...this.#unwritten()];
      if (offsets.length > 0 && !(await this.#write(offsets))) return; // the next interval tries again
    } while (this.#again);
  }

  /** One barrier for all lanes that need one. If it fails, their offsets stay in front of what it should have covered. */
  async #secure(): Promise<void> {
    const lanes = [...this.lanes()].filter((lane) => lane.ledger.needsBarrier);
    if (lanes.length === 0) return;
    lanes.forEach((lane) => lane.ledger.beginBarrier());
    try {
      await this.barrier();
      lanes.forEach((lane) => lane.ledger.endBarrier());
    } catch (error) {
      lanes.forEach((lane) => lane.ledger.failBarrier());
      this.#logger.warn(
        `Offsets of events that may not be on the database's disk yet are not committed, for the barrier failed: ${String(error)}`,
      );
    }
  }

  *#unwritten(): Generator<PartitionOffset & { lane: Lane }> {
    for (const lane of this.lanes()) {
      const offset = lane.ledger.secured;
      if (lane.ledger.needsCommit && offset !== lane.ledger.committed)
        yield { lane, topic: lane.topic, partition: lane.partition, offset };
    }
  }

  async #write(offsets: readonly (PartitionOffset & { lane: Lane })[]): Promise<boolean> {
    const told = offsets.map(({ topic, partition, offset }) => ({ topic, partition, offset: offset.toString() }));
    this.emit({ name: 'committing', offsets: told });
    try {
      await this.client.commit(offsets);
    } catch (error) {
      this.#refusedSince ??= performance.now();
      // The work is done and stays done: whoever owns the partition next skips it as duplicates.
      this.#logger.warn(
        `The broker did not take the offsets of ${offsets.length} partition(s): ${(error as Error).message}. Their records are delivered again and skipped`,
      );
      return false;
    }
    this.#refusedSince = undefined;
    for (const { lane, offset } of offsets) lane.ledger.commitAcknowledged(offset);
    this.emit({ name: 'committed', offsets: told });
    return true;
  }
}
