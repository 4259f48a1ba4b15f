import { WARM_UP, type ContenderResult } from './workload.js';

/** Counts handled events and times all after the warm-up; the same for every contender. */
export class Stopwatch {
  readonly finished: Promise<ContenderResult>;
  #count = 0;
  #warm = 0;
  #startedAt = 0;
  #cpu: NodeJS.CpuUsage | undefined;
  #tell: (result: ContenderResult) => void = () => {};

  constructor(private readonly events: number) {
    this.finished = new Promise((resolve) => (this.#tell = resolve));
  }

  /** Called by the handler when the work of an event, or of so many, is done. */
  handled(events = 1): void {
    const before = this.#count;
    this.#count += events;
    if (before < WARM_UP && this.#count >= WARM_UP) {
      this.#warm = this.#count;
      this.#startedAt = performance.now();
      this.#cpu = process.cpuUsage();
    }
    if (before >= this.events || this.#count < this.events) return;
    const { user, system } = process.cpuUsage(this.#cpu);
    this.#tell({
      timedEvents: this.events - this.#warm,
      ms: performance.now() - this.#startedAt,
      cpuMs: (user + system) / 1000,
    });
  }
}
