import type { StoredRecord } from '../shared/parking.js';
import { storedTime } from './stored-record.js';

/**
 * What is parked of one partition, as its owner knows it: per consumer the held keys and the offsets of parked records. It may know more than there
 * is, never less; what it knows is looked at before it counts. Empty, and so free of cost, while nothing is parked.
 */
export class ParkedMemory {
  readonly #consumers = new Map<string, { readonly keys: Set<string>; readonly offsets: Map<bigint, Set<number>> }>();

  add(consumer: string, parked: { holdKey: Buffer | null; record: Pick<StoredRecord, 'offset' | 'timestamp'> }): void {
    let known = this.#consumers.get(consumer);
    if (known === undefined) this.#consumers.set(consumer, (known = { keys: new Set(), offsets: new Map() }));
    if (parked.holdKey !== null) known.keys.add(bytesOf(parked.holdKey));
    const { offset, timestamp } = parked.record;
    const times = known.offsets.get(offset);
    if (times === undefined) known.offsets.set(offset, new Set([timeOf(timestamp)]));
    else times.add(timeOf(timestamp));
  }

  get isEmpty(): boolean {
    return this.#consumers.size === 0;
  }

  /** Nothing is known of this consumer. */
  isFree(consumer: string): boolean {
    return !this.#consumers.has(consumer);
  }

  holds(consumer: string, key: Buffer): boolean {
    return this.#consumers.get(consumer)?.keys.has(bytesOf(key)) ?? false;
  }

  /** A record made anew under an old offset has another time, and is not the parked one. */
  hasParked(consumer: string, { offset, timestamp }: StoredRecord): boolean {
    return this.#consumers.get(consumer)?.offsets.get(offset)?.has(timeOf(timestamp)) ?? false;
  }

  forget(consumer: string, holdKey: Buffer | null, offset: bigint): void {
    const known = this.#consumers.get(consumer);
    if (known === undefined) return;
    if (holdKey !== null) known.keys.delete(bytesOf(holdKey));
    known.offsets.delete(offset);
    if (known.keys.size === 0 && known.offsets.size === 0) this.#consumers.delete(consumer);
  }
}

function bytesOf(key: Buffer): string {
  return key.toString('latin1');
}

function timeOf(timestamp: Date): number {
  return storedTime(timestamp).getTime();
}
