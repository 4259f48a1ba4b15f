import { partitionKey, type TopicPartition } from '../kafka/positions.js';

/** Transactions last for moments; Kafka's own clients are ended by the broker after a minute. */
const STALLED_MS = 10_000;
/** A partition that is not fetched tells nothing. */
const FORGOTTEN_MS = 30_000;

/** How far a partition may be read, and how far it is written. */
export interface Readable extends TopicPartition {
  readonly stable: bigint;
  readonly end: bigint;
}

export interface StalledRead extends Readable {
  readonly since: Date;
}

/** Partitions in which a transaction that somebody left open keeps everything behind it from being read. Pure. */
export class StalledReads {
  readonly #open = new Map<string, { readable: Readable; readonly since: number; seenAt: number }>();

  /** What a fetch has told; by performance.now(). */
  seen(readable: Readable, now: number): void {
    const key = partitionKey(readable);
    if (readable.stable >= readable.end) {
      this.#open.delete(key);
      return;
    }
    const known = this.#open.get(key);
    if (known?.readable.stable !== readable.stable) this.#open.set(key, { readable, since: now, seenAt: now });
    else [known.readable, known.seenAt] = [readable, now];
  }

  /** Of all other partitions somebody else tells. */
  keepOnly(places: readonly TopicPartition[]): void {
    const kept = new Set(places.map(partitionKey));
    for (const key of this.#open.keys()) if (!kept.has(key)) this.#open.delete(key);
  }

  stalled(now: number): StalledRead[] {
    return [...this.#open.values()]
      .filter(({ since, seenAt }) => now - since >= STALLED_MS && now - seenAt < FORGOTTEN_MS)
      .map(({ readable, since }) => ({ ...readable, since: new Date(Date.now() - (now - since)) }));
  }
}

/** In words, for health and log. */
export function stalledDetail({ topic, partition, stable, end }: StalledRead): string {
  return `${topic}[${partition}] can be read up to offset ${stable} only, and ${end - stable} offsets wait behind it: a producer has left a transaction open. The broker ends it after that producer's transaction timeout; look for a process that hangs`;
}
