import { WARM_UP, type ContenderResult } from './workload.js';

/** Counts handled events and times all after the warm-up; the same for every contender. */
export class Stopwatch {
  readonly finished: Promise<ContenderResult>;
  #count = 0;
  #startedAt = 0;
  #cpu: NodeJS.CpuUsage | undefined;
  #tell: (result: ContenderResult) => void = () => {};

  constructor(private readonly events: number) {
    this.finished = new Promise((resolve) => (this.#tell = resolve));
  }

  /** Called by the handler when an event's work is done. */
  handled(): void {
    this.#count += 1;
    if (this.#count === WARM_UP) {
      this.#startedAt = performance.now();
      this.#cpu = process.cpuUsage();
    }
    if (this.#count !== this.events) return;
    const { user, system } = process.cpuUsage(this.#cpu);
    this.#tell({
      timedEvents: this.events - WARM_UP,
      ms: performance.now() - this.#startedAt,
      cpuMs: (user + system) / 1000,
    });
  }
}
