interface Waiting {
  readonly need: number;
  grant(): void;
}

/** A bounded number of deliveries at once; who waits is served in order, so that one that needs all slots is not overtaken for ever. */
export class Slots {
  #free: number;
  #waiting: Waiting[] = [];

  constructor(readonly size: number) {
    this.#free = size;
  }

  /** Somebody waits for slots. */
  get isWanted(): boolean {
    return this.#waiting.length > 0;
  }

  /** Takes `need` slots if they are free and nobody waits: then nothing has to be awaited. Pair with {@link release}. */
  tryAcquire(need = 1): boolean {
    if (this.#waiting.length > 0 || this.#free < need) return false;
    this.#free -= need;
    return true;
  }

  /** Waits for the slots; false if the signal aborted before, and then there is nothing to release. */
  acquire(signal: AbortSignal, need = 1): Promise<boolean> {
    if (signal.aborted) return Promise.resolve(false);
    if (this.tryAcquire(need)) return Promise.resolve(true);
    return new Promise((resolve) => {
      const leave = () => {
        this.#waiting = this.#waiting.filter((other) => other !== waiting);
        this.#serve(); // who stood behind it may need less
        resolve(false);
      };
      const waiting: Waiting = {
        need,
        grant: () => {
          signal.removeEventListener('abort', leave);
          resolve(true);
        },
      };
      this.#waiting.push(waiting);
      signal.addEventListener('abort', leave, { once: true });
    });
  }

  release(count = 1): void {
    this.#free += count;
    this.#serve();
  }

  #serve(): void {
    for (let next = this.#waiting[0]; next !== undefined && next.need <= this.#free; next = this.#waiting[0]) {
      this.#waiting.shift();
      this.#free -= next.need;
      next.grant();
    }
  }
}
