/** So many duplicates in a row are a run of them. */
const RUN = 2;
const FIRST = 16;
const MOST = 500;

/**
 * How many of the records that wait are looked up at once, instead of claimed one by one. Pure:
 * - none, until two records in a row were duplicates;
 * - twice as many each time all of them were, up to 500;
 * - as many again while at least half of them were; else none, until there is a run again.
 */
export class ProbePlan {
  #inARow = 0;
  #size = FIRST;

  /** 0: no reason to look anything up. */
  get next(): number {
    return this.#inARow < RUN ? 0 : this.#size;
  }

  /** A record that was not looked up is final. */
  settled({ duplicate }: { readonly duplicate: boolean }): void {
    this.#inARow = duplicate ? this.#inARow + 1 : 0;
    if (!duplicate) this.#size = FIRST;
  }

  /** Of so many looked up, so many were duplicates. */
  probed(asked: number, found: number): void {
    if (found === asked && asked > 0) this.#size = Math.min(this.#size * 2, MOST);
    else if (found * 2 < asked || asked === 0) this.giveUp();
  }

  giveUp(): void {
    this.#inARow = 0;
    this.#size = FIRST;
  }
}
