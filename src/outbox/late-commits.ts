export interface OpenTransaction {
  readonly xid: string;
  /** Its rows have higher ids. */
  readonly above: bigint;
}

/** What a read tells of the transactions beside it. */
export interface ReadMoment {
  /** As PostgreSQL writes it, `xmin:xmax:xip,xip`: those that were writing; also those from `xmax` on, whether they had begun or not. */
  readonly snapshot: string;
  /** A transaction id taken after the snapshot: a transaction with a higher one has begun to write since. */
  readonly after: bigint;
}

interface Read {
  /** The id taken then. */
  readonly after: bigint;
  /** The highest id of a row that was read by then. */
  readonly newest: bigint;
}

/**
 * Transactions that were, or may have been, writing when the last read was made. What they commit may stand below everything that has been read, and the next row of its key above it: a read that
 * sees the end of one must begin where it may have begun, or that next row would be sent first. While it is open nothing has to be looked for: the read itself tells which have ended.
 */
export class LateCommits {
  #open: readonly OpenTransaction[] = [];
  #unlisted: OpenTransaction = { xid: '3', above: 0n };
  #reads: readonly Read[] = [];
  #newest = 0n;

  get open(): readonly OpenTransaction[] {
    return this.#open;
  }

  /** A snapshot does not list the youngest: any transaction from this one on may have been writing. */
  get unlisted(): OpenTransaction {
    return this.#unlisted;
  }

  /** What a read has seen. */
  saw({ snapshot, after }: ReadMoment, ids: readonly bigint[]): void {
    const known = new Map(this.#open.map(({ xid, above }) => [xid, above]));
    const [, xmax, writing = ''] = snapshot.split(':') as [string, string, string?];
    this.#open = (writing === '' ? [] : writing.split(',')).map((xid) => ({
      xid,
      above: known.get(xid) ?? this.#above(BigInt(xid)),
    }));
    for (const id of ids) if (id > this.#newest) this.#newest = id;
    this.#unlisted = { xid: xmax, above: this.#above(BigInt(xmax)) };
    // What is open the next time and is not now, is one of the unlisted: nothing older is asked for.
    const needed = this.#reads.findLastIndex((read) => read.after < BigInt(xmax));
    this.#reads = [...this.#reads.slice(Math.max(needed, 0)), { after, newest: this.#newest }];
  }

  /** It has drawn its ids behind the last read that was over when it began to write. */
  #above(xid: bigint): bigint {
    return this.#reads.findLast((read) => read.after < xid)?.newest ?? 0n;
  }
}
