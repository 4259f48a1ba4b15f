/**
 * How many of the records that wait come into the next transaction. Pure. After a failure it divides what was tried, so that what is good goes together, and what is
 * not is found and goes alone:
 * - at record k: those before it together, k alone, and those behind it together;
 * - at COMMIT, without a record: by halves.
 */
export class GroupPlan {
  /** Of the records in front; what comes behind them is as it would be without a failure. */
  readonly #parts: number[] = [];

  constructor(private readonly most: number) {}

  /** 1: the record goes its own way, with its attempts and its parking. */
  get next(): number {
    return this.#parts[0] ?? this.most;
  }

  /** A failure is being looked for. */
  get isDivided(): boolean {
    return this.#parts.length > 0;
  }

  /** So many from the first on are final. */
  done(count: number): void {
    const [first] = this.#parts;
    if (first !== undefined) this.#replace(count, []);
  }

  /** Of so many tried, this one failed. */
  failedAt(at: number, tried: number): void {
    this.#replace(tried, [at, 1, tried - at - 1]);
  }

  /** Their transaction failed, and nothing tells by which of them. */
  failed(tried: number): void {
    const half = Math.ceil(tried / 2);
    this.#replace(tried, [half, tried - half]);
  }

  /** Another live copy of one of them is at work. */
  oneByOne(tried: number): void {
    this.#replace(
      tried,
      Array.from({ length: tried }, () => 1),
    );
  }

  #replace(count: number, parts: readonly number[]): void {
    const rest = (this.#parts.shift() ?? count) - count;
    this.#parts.unshift(...[...parts, rest].filter((part) => part > 0));
  }
}
