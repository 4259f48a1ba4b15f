import type { Timing } from './workload.js';

/** Counts handled records and times all after the warm-up; the same for every contender. */
export class Stopwatch {
  readonly finished: Promise<Timing>;
  #count = 0;
  #warm = 0;
  #startedAt = 0;
  #cpu: NodeJS.CpuUsage | undefined;
  #tell: (timing: Timing) => void = () => {};

  constructor(
    private readonly records: number,
    private readonly warmUp: number,
  ) {
    this.finished = new Promise((resolve) => (this.#tell = resolve));
  }

  /** Called when the work of a record, or of so many, is done, or when a duplicate is skipped. */
  handled(records = 1): void {
    const before = this.#count;
    this.#count += records;
    if (before < this.warmUp && this.#count >= this.warmUp) {
      this.#warm = this.#count;
      this.#startedAt = performance.now();
      this.#cpu = process.cpuUsage();
    }
    if (before >= this.records || this.#count < this.records) return;
    const { user, system } = process.cpuUsage(this.#cpu);
    this.#tell({
      timedEvents: this.records - this.#warm,
      ms: performance.now() - this.#startedAt,
      cpuMs: (user + system) / 1000,
    });
  }
}
