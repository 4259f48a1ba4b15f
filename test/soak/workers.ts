import { closeSync, openSync } from 'node:fs';
import { join } from 'node:path';
import type { WorkerPlan, WorkerReport } from './worker.js';
import { WorkerProcess } from './worker-process.js';

/** A number of workers that are replaced as soon as they end. One that ends by itself is told. */
export class Workers {
  readonly #seats: WorkerProcess[] = [];
  #started = 0;
  #closing = false;

  constructor(
    private readonly plan: Omit<WorkerPlan, 'mended'>,
    private readonly folder: string,
    private readonly tell: { readonly report: (report: WorkerReport) => void; readonly lost: (how: string) => void },
  ) {}

  start(count: number): void {
    for (let seat = 0; seat < count; seat++) this.#fill(seat);
  }

  get count(): number {
    return this.#seats.length;
  }

  /** The worker in this seat, by its number from 0. */
  at(seat: number): WorkerProcess {
    return this.#seats[seat] as WorkerProcess;
  }

  /** All of them have partitions, and all partitions have an owner. */
  areAtWork(partitions: number): boolean {
    return (
      this.#seats.every((worker) => worker.partitions.length > 0) &&
      new Set(this.#seats.flatMap((worker) => worker.partitions)).size === partitions
    );
  }

  /** One more, outside of the seats, with the cause of the poison mended. */
  mended(report: (report: WorkerReport) => void): WorkerProcess {
    return this.#launch(true, report);
  }

  /** Asks all of them to stop. Resolves with how each ended. */
  stop(): Promise<string[]> {
    this.#closing = true;
    return Promise.all(this.#seats.map((worker) => worker.stop()));
  }

  async kill(): Promise<void> {
    this.#closing = true;
    await Promise.all(this.#seats.map((worker) => worker.kill()));
  }

  #fill(seat: number): void {
    const worker = this.#launch(false, this.tell.report);
    this.#seats[seat] = worker;
    void worker.ended.then((how) => {
      if (this.#closing) return;
      if (!worker.isAskedToEnd) this.tell.lost(how);
      this.#fill(seat);
    });
  }

  #launch(mended: boolean, report: (report: WorkerReport) => void): WorkerProcess {
    const output = openSync(join(this.folder, `worker-${++this.#started}.log`), 'a');
    try {
      return new WorkerProcess({ ...this.plan, mended }, output, report);
    } finally {
      closeSync(output);
    }
  }
}
