/** What has a place in the order. */
interface Ordered {
  readonly offset: bigint;
}

/**
 * What waits in a lane, and what of it may begin. Pure:
 * - of one key at most one has begun, and they begin in the order in which they came;
 * - whatever key is free may begin, the one that came first before the others.
 *
 * `keyOf`: equal for records whose order counts. Records come in ascending order of their offsets.
 */
export class KeyQueues<Item extends Ordered> {
  /** The first of each key that has none begun, in order. */
  readonly #ready: Item[] = [];
  /** By key, what waits behind the one that is ready or has begun. */
  readonly #behind = new Map<unknown, Item[]>();
  #size = 0;
  #begun = 0;

  constructor(private readonly keyOf: (item: Item) => unknown) {}

  /** How many are here: waiting, or begun and not ended. */
  get size(): number {
    return this.#size;
  }

  /** How many have begun and not ended. */
  get begun(): number {
    return this.#begun;
  }

  push(item: Item): void {
    this.#size += 1;
    const key = this.keyOf(item);
    const behind = this.#behind.get(key);
    if (behind !== undefined) {
      behind.push(item);
      return;
    }
    this.#behind.set(key, []);
    this.#ready.push(item);
  }

  /** Takes the next that may begin; undefined: none may now. To be followed by {@link end} or {@link putBack}. */
  begin(): Item | undefined {
    const item = this.#ready.shift();
    if (item !== undefined) this.#begun += 1;
    return item;
  }

  /** The first `count` that wait behind this one, which has begun; less if there are not so many. */
  behind(item: Item, count: number): Item[] {
    return this.#behind.get(this.keyOf(item))?.slice(0, count) ?? [];
  }

  /** The one that may begin next. */
  get first(): Item | undefined {
    return this.#ready[0];
  }

  /** The first `count` of all that have not begun, in their order, from behind that offset on. */
  waiting(count: number, behind: bigint): Item[] {
    const items = [...this.#ready, ...[...this.#behind.values()].flat()].filter(({ offset }) => offset > behind);
    return items.sort((one, other) => (one.offset < other.offset ? -1 : 1)).slice(0, count);
  }

  /** These are done without having begun. */
  drop(items: readonly Item[]): void {
    const gone = new Set(items);
    this.#size -= gone.size;
    for (const key of new Set(items.map((item) => this.keyOf(item)))) {
      const behind = this.#behind.get(key)!.filter((item) => !gone.has(item));
      this.#behind.set(key, behind);
    }
    for (const item of this.#ready.splice(0)) {
      if (!gone.has(item)) this.#makeReady(item);
      else this.#advance(this.keyOf(item));
    }
  }

  /** It is done: the next of its key may begin. */
  end(item: Item): void {
    this.#size -= 1;
    this.#begun -= 1;
    this.#advance(this.keyOf(item));
  }

  /** It is done, and so are as many that wait behind it. */
  endWith(item: Item, waiting: number): void {
    this.#behind.get(this.keyOf(item))?.splice(0, waiting);
    this.#size -= waiting;
    this.end(item);
  }

  /** It is not done: it stands in front of its key again. */
  putBack(item: Item): void {
    this.#begun -= 1;
    this.#makeReady(item);
  }

  #advance(key: unknown): void {
    const next = this.#behind.get(key)?.shift();
    if (next === undefined) this.#behind.delete(key);
    else this.#makeReady(next);
  }

  #makeReady(item: Item): void {
    const at = this.#ready.findIndex(({ offset }) => offset > item.offset);
    if (at === -1) this.#ready.push(item);
    else this.#ready.splice(at, 0, item);
  }
}
