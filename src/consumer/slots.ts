/** A bounded number of deliveries at once; who waits is served in order. */
export class Slots {
  #free: number;
  readonly #waiting: (() => void)[] = [];

  constructor(readonly size: number) {
    this.#free = size;
  }

  /** Takes a slot if one is free: then nothing has to be awaited. Pair with {@link release}. */
  tryAcquire(): boolean {
    if (this.#free === 0) return false;
    this.#free -= 1;
    return true;
  }

  /** Waits for a slot. Pair with {@link release}. */
  acquire(): Promise<void> {
    return this.tryAcquire() ? Promise.resolve() : new Promise((resolve) => this.#waiting.push(resolve));
  }

  release(): void {
    const next = this.#waiting.shift();
    if (next === undefined) this.#free += 1;
    else next(); // the slot passes on without becoming free
  }
}
