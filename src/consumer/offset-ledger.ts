/**
 * What is finished of one partition. Pure book-keeping:
 * - `committable` is the lowest unfinished offset: everything below it is settled, whatever order records end in;
 * - offsets that hold no record for a handler (compaction, aborted or control records) are covered, not settled;
 * - what a record did may not be on the database's disk yet, its own transaction's work or, of a skipped duplicate, somebody else's: `secured` stops in front of
 *   it until a barrier that began after it has finished.
 */
export class OffsetLedger {
  readonly #taken: { offset: bigint; settled: boolean }[] = [];
  /** So many of them, in front, are settled. Taken out of the array one by one, each would move all that stand behind it. */
  #finished = 0;
  #covered: bigint;
  #committed: bigint | undefined;
  #unsecured: bigint | undefined;
  #securing: bigint | undefined;

  /** `start`: the first offset to handle. `committed`: what the group's offset is known to be, undefined if it has none. */
  constructor(start: bigint, committed: bigint | undefined) {
    this.#covered = start;
    this.#committed = committed;
  }

  /** The offset the next fetched batch has to begin with. */
  get next(): bigint {
    return this.#covered;
  }

  get committable(): bigint {
    return this.#taken[this.#finished]?.offset ?? this.#covered;
  }

  /** How many records were taken from the lowest unfinished one on. */
  get pending(): number {
    return this.#taken.length - this.#finished;
  }

  /** What may be committed without a further barrier. */
  get secured(): bigint {
    return lowest(this.committable, this.#securing, this.#unsecured);
  }

  get committed(): bigint | undefined {
    return this.#committed;
  }

  get needsCommit(): boolean {
    return this.committable !== this.#committed;
  }

  get needsBarrier(): boolean {
    return this.#unsecured !== undefined && this.#unsecured < this.committable;
  }

  /** Everything settled is on the database's disk. */
  get isDurable(): boolean {
    return this.#unsecured === undefined && this.#securing === undefined;
  }

  /** A record of the partition is in the lane. Offsets come in ascending order. */
  take(offset: bigint): void {
    this.#taken.push({ offset, settled: false });
    this.#covered = offset + 1n;
  }

  /** Nothing below `next` is left to come that has not been taken. */
  cover(next: bigint): void {
    if (next > this.#covered) this.#covered = next;
  }

  settle(offset: bigint, settlement: { readonly durable: boolean }): void {
    const entry = this.#entryOf(offset);
    if (entry === undefined) throw new Error(`offset ${offset} was settled without having been taken`);
    entry.settled = true;
    if (!settlement.durable) this.#unsecured = lowest(offset, this.#unsecured);
    while (this.#taken[this.#finished]?.settled) this.#finished += 1;
    if (this.#finished * 2 < this.#taken.length) return;
    this.#taken.splice(0, this.#finished);
    this.#finished = 0;
  }

  /** Mostly the first; behind a record that fails for long it may be any. */
  #entryOf(offset: bigint): { offset: bigint; settled: boolean } | undefined {
    const first = this.#taken[this.#finished];
    if (first?.offset === offset) return first;
    let [low, high] = [this.#finished, this.#taken.length - 1];
    while (low < high && this.#taken[low]!.offset !== offset) {
      const middle = (low + high + 1) >> 1;
      if (this.#taken[middle]!.offset > offset) high = middle - 1;
      else low = middle;
    }
    const found = this.#taken[low];
    return found?.offset === offset ? found : undefined;
  }

  /** Whatever is not finished may have been committed without being safe: a barrier has to follow. */
  doubt(): void {
    this.#unsecured = lowest(this.committable, this.#unsecured);
  }

  /** A barrier begins now: it will cover what is settled so far, not what settles while it runs. */
  beginBarrier(): void {
    if (this.#unsecured === undefined) return;
    this.#securing = lowest(this.#unsecured, this.#securing);
    this.#unsecured = undefined;
  }

  endBarrier(): void {
    this.#securing = undefined;
  }

  failBarrier(): void {
    if (this.#securing !== undefined) this.#unsecured = lowest(this.#securing, this.#unsecured);
    this.#securing = undefined;
  }

  /** The group's offset was written over by somebody else: what is finished has to be written again. */
  commitOverwritten(): void {
    this.#committed = undefined;
  }

  /** The group's offset has been written. */
  commitAcknowledged(offset: bigint): void {
    this.#committed = offset;
  }
}

function lowest(first: bigint, ...others: (bigint | undefined)[]): bigint {
  return others.reduce<bigint>((least, other) => (other !== undefined && other < least ? other : least), first);
}
