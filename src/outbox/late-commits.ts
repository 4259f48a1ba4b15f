export interface OpenTransaction {
  readonly xid: string;
  /** Its rows have higher ids. */
  readonly above: bigint;
}

/**
 * Transactions that were writing when the last read was made. What they commit may stand below everything that has been read, and the next row of its key above: a read that sees the end of one
 * must begin where it may have begun, or that next row would be sent first. While it is open nothing has to be looked for: the read itself tells which have ended (`pg_visible_in_snapshot`).
 */
export class LateCommits {
  #open: readonly OpenTransaction[] = [];
  /** The highest id that was read. */
  #newest = 0n;

  get open(): readonly OpenTransaction[] {
    return this.#open;
  }

  /** What a read has seen; the snapshot as PostgreSQL writes it, `xmin:xmax:xip,xip`. A transaction that was not writing at the one before has drawn its ids since. */
  saw(snapshot: string, ids: readonly bigint[]): void {
    const known = new Map(this.#open.map(({ xid, above }) => [xid, above]));
    const [, , writing = ''] = snapshot.split(':');
    this.#open = (writing === '' ? [] : writing.split(',')).map((xid) => ({
      xid,
      above: known.get(xid) ?? this.#newest,
    }));
    for (const id of ids) if (id > this.#newest) this.#newest = id;
  }
}
