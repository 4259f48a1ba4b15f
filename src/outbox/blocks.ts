import { lineOf, type OutboxRow } from './outbox-row.js';
import type { Positions } from './scan.js';

/** More blocked keys than that, and their topic waits as a whole. */
const MOST_KEYS = 1000;

interface Block {
  readonly untilMs: number;
  readonly key: Buffer | null;
}

/** What must not be sent for a while: keys whose first row has failed, and topics that do not take anything. In memory; `due_at` tells the next owner. */
export class Blocks {
  readonly #lines = new Map<string, Block>();
  readonly #topics = new Map<string, number>();
  #floor: bigint[] | undefined;

  /** `from`: where the read began that met the row, so that none behind it is passed over. */
  block(row: OutboxRow, untilMs: number, from: Positions): void {
    if (this.#lines.size >= MOST_KEYS) this.blockTopic(row.topic, untilMs, from);
    else this.#lines.set(lineOf(row), { untilMs, key: row.key });
    this.#lowerFloor(from);
  }

  blockTopic(topic: string, untilMs: number, from: Positions): void {
    this.#topics.set(topic, Math.max(untilMs, this.#topics.get(topic) ?? 0));
    this.#lowerFloor(from);
  }

  isBlocked(row: Pick<OutboxRow, 'id' | 'key' | 'topic'>): boolean {
    return this.#topics.has(row.topic) || (this.#lines.size > 0 && this.#lines.has(lineOf(row)));
  }

  get topics(): string[] {
    return [...this.#topics.keys()];
  }

  get keys(): Buffer[] {
    return [...this.#lines.values()].flatMap(({ key }) => (key === null ? [] : [key]));
  }

  /** Nothing blocked lies below. */
  get floor(): Positions | undefined {
    return this.#floor;
  }

  /** When the first of them ends. */
  get nextMs(): number {
    const ends = [...[...this.#lines.values()].map(({ untilMs }) => untilMs), ...this.#topics.values()];
    return ends.reduce((least, end) => Math.min(least, end), Infinity);
  }

  /** Lets go of those whose time is over. Gives from where their rows are to be looked for, if there are any. */
  expire(nowMs: number): Positions | undefined {
    let isAny = false;
    for (const [line, { untilMs }] of this.#lines) if (untilMs <= nowMs) isAny = this.#lines.delete(line) || isAny;
    for (const [topic, untilMs] of this.#topics) if (untilMs <= nowMs) isAny = this.#topics.delete(topic) || isAny;
    return isAny ? this.#floor : undefined;
  }

  clear(): void {
    this.#lines.clear();
    this.#topics.clear();
    this.#floor = undefined;
  }

  /** Everything has been looked at since: what was let go of is sent, or blocked anew. */
  settle(): void {
    if (this.#lines.size + this.#topics.size === 0) this.#floor = undefined;
  }

  #lowerFloor(from: Positions): void {
    this.#floor = from.map((id, shard) => {
      const now = this.#floor?.[shard];
      return now === undefined || id < now ? id : now;
    });
  }
}
