/** Numbers that follow from a seed alone (mulberry32), so that a run's faults can be repeated. */
export class Random {
  constructor(private state: number) {}

  /** 0 <= x < 1. */
  next(): number {
    this.state = (this.state + 0x6d2b79f5) | 0;
    let mixed = Math.imul(this.state ^ (this.state >>> 15), 1 | this.state);
    mixed = (mixed + Math.imul(mixed ^ (mixed >>> 7), 61 | mixed)) ^ mixed;
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 2 ** 32;
  }

  /** A whole number, both bounds included. */
  between(lowest: number, highest: number): number {
    return lowest + Math.floor(this.next() * (highest - lowest + 1));
  }

  chance(probability: number): boolean {
    return this.next() < probability;
  }

  pick<T>(choices: readonly T[]): T {
    return choices[this.between(0, choices.length - 1)] as T;
  }

  /** By weight: twice the weight, twice as often. */
  weighted<T extends { readonly weight: number }>(choices: readonly T[]): T {
    let at = this.next() * choices.reduce((sum, { weight }) => sum + weight, 0);
    return choices.find(({ weight }) => (at -= weight) < 0) ?? (choices.at(-1) as T);
  }
}
