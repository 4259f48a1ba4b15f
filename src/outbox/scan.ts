import { SHARDS } from '../kafka/key-shard.js';

/** An id for each shard: what is above it has not been looked at. */
export type Positions = readonly bigint[];

/** Of `pg_current_snapshot()`: transactions below `xmin` have ended; those from `xmax` on had not begun to write. */
export interface Snapshot {
  readonly xmin: bigint;
  readonly xmax: bigint;
}

interface Mark {
  readonly atMs: number;
  readonly xmax: bigint;
  readonly reach: Positions;
}

/** A transaction gets its id a little after the row's: longer than any pause between the two that is not looked for from the beginning. */
const SETTLED_MS = 5000;
/** What commits within this time is found without looking back further. */
const NEAR_MS = 500;

const START: Positions = Array.from({ length: SHARDS }, () => 0n);

/**
 * From where rows are looked for. A row with a lower id may be committed later than one with a higher, so no highest id decides; but under another
 * session's old snapshot every deleted row is still walked over, so the beginning is a bad place too:
 * - a pass goes on from its cursors;
 * - the next one begins where reading had come half a second ago;
 * - a new owner begins at the low water, below which every transaction that could add a row has ended.
 */
export class Scan {
  #cursors = [...START];
  #reach = [...START];
  #near: Positions = START;
  #nextNear: Positions = START;
  #nearAtMs = 0;
  #safe: bigint[] = [...START];
  #marks: Mark[] = [];

  get cursors(): Positions {
    return [...this.#cursors];
  }

  /** A shard has come: nothing above that id has been looked at. */
  enter(shard: number, low: bigint): void {
    const set = (positions: Positions) => positions.with(shard, low);
    [this.#cursors, this.#reach, this.#safe] = [set(this.#cursors), set(this.#reach), set(this.#safe)];
    [this.#near, this.#nextNear] = [set(this.#near), set(this.#nextNear)];
    this.#marks = [];
  }

  /** These were read, in the order of their ids. */
  passed(rows: readonly { readonly shard: number; readonly id: bigint }[]): void {
    for (const { shard, id } of rows) {
      this.#cursors[shard] = id;
      if (id > this.#reach[shard]!) this.#reach[shard] = id;
    }
  }

  /** All that was to be found has been. */
  toNear(nowMs: number): void {
    if (nowMs - this.#nearAtMs >= NEAR_MS) {
      [this.#near, this.#nextNear, this.#nearAtMs] = [this.#nextNear, [...this.#reach], nowMs];
    }
    this.#cursors = [...this.#near];
  }

  /** No further than these. */
  backTo(positions: Positions): void {
    this.#cursors = this.#cursors.map((cursor, shard) => lower(cursor, positions[shard]!));
  }

  /** Below what had been read, from that id on in these shards; as far as `seenTo` where the answer was full. */
  lookedBack(from: bigint, shards: readonly number[], seenTo: bigint | undefined): void {
    this.backTo(this.#cursors.map((cursor, shard) => (shards.includes(shard) ? (seenTo ?? cursor) : from)));
  }

  toStart(): void {
    this.#cursors = [...START];
  }

  /** Of what was read, something was not sent: nothing counts as looked at. */
  restart(): void {
    this.#cursors = [...START];
    this.#reach = [...START];
    this.#near = this.#nextNear = START;
    this.#safe = [...START];
    this.#marks = [];
  }

  /** The low water rises as transactions end. */
  mark(nowMs: number, { xmin, xmax }: Snapshot): void {
    const ended = this.#marks.filter((mark) => xmin >= mark.xmax && nowMs - mark.atMs >= SETTLED_MS);
    const last = ended.at(-1);
    if (last !== undefined) {
      this.#safe = [...last.reach];
      this.#marks = this.#marks.slice(this.#marks.indexOf(last) + 1);
    }
    const newest = this.#marks.at(-1);
    // One per second is enough, and few are kept while an open transaction holds them up.
    if (newest === undefined || nowMs - newest.atMs >= (this.#marks.length < 100 ? 1000 : SETTLED_MS * 10))
      this.#marks.push({ atMs: nowMs, xmax, reach: [...this.#reach] });
  }

  lowWater(shard: number): bigint {
    return this.#safe[shard]!;
  }
}

export function lower(one: bigint, other: bigint): bigint {
  return one < other ? one : other;
}
