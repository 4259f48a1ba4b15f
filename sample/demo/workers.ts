import { until } from 'nestjs-kafka-idempotency/testing';
import type { WorkerMessage } from './worker-message.js';
import { WorkerProcess, type WorkerEnd, type WorkerLaunch } from './worker-process.js';

const START_DEADLINE_MS = 45_000;

/** Keeps a number of workers running: whoever ends is replaced at once. One that ends by itself is a failure, told as `lost`. */
export class Workers {
  readonly #workers = new Set<WorkerProcess>();
  readonly #awaitingWork = new Set<(worker: WorkerProcess) => void>();
  #closing = false;
  #kills = 0;
  #skipped = 0;

  constructor(
    private readonly launch: WorkerLaunch,
    private readonly count: number,
    private readonly tell: { readonly lost: (error: Error) => void; readonly log: (line: string) => void },
  ) {}

  /** SIGKILLs that hit a worker while it ran. */
  get kills(): number {
    return this.#kills;
  }

  /** Claims that found a row, as far as the workers lived to tell. */
  get skipped(): number {
    return this.#skipped;
  }

  /** Resolves when each of them has partitions. */
  async start(signal: AbortSignal): Promise<void> {
    for (let started = 0; started < this.count; started += 1) this.#startOne();
    await until(() => signal.aborted || [...this.#workers].every((worker) => worker.hasPartitions), {
      what: `${this.count} workers to have partitions`,
      timeoutMs: START_DEADLINE_MS,
    });
    signal.throwIfAborted();
  }

  /** Kills the next worker that is at its work. Undefined when the signal aborts before. */
  async killNext(signal: AbortSignal): Promise<WorkerEnd | undefined> {
    const end = await this.#nextAtWork(signal, (worker) => worker.kill());
    if (end === 'killed') this.#kills += 1;
    return end;
  }

  /** Asks the next worker that is at its work to stop. Undefined when the signal aborts before. */
  stopNext(signal: AbortSignal): Promise<WorkerEnd | undefined> {
    return this.#nextAtWork(signal, (worker) => {
      this.tell.log(`Worker ${worker.pid} is asked to stop`);
      return worker.stop();
    });
  }

  /** Stops all of them; with `kill`, at once. */
  async close(how: 'stop' | 'kill'): Promise<WorkerEnd[]> {
    this.#closing = true;
    return Promise.all([...this.#workers].map((worker) => worker[how]()));
  }

  /**
   * Ends the next worker that tells it has just applied an event, in that moment: at its work, with an offset that is not committed and perhaps the
   * next transaction open. Never the last one with partitions: on a busy machine, where a new worker takes seconds to start, the group would do
   * nothing but start. `end` is called at once, so that nobody else can choose the same one.
   */
  #nextAtWork(signal: AbortSignal, end: (worker: WorkerProcess) => Promise<WorkerEnd>): Promise<WorkerEnd | undefined> {
    return new Promise((resolve) => {
      if (signal.aborted) return resolve(undefined);
      const chosen = (worker: WorkerProcess) => {
        this.#awaitingWork.delete(chosen);
        signal.removeEventListener('abort', givenUp);
        resolve(end(worker));
      };
      const givenUp = () => {
        this.#awaitingWork.delete(chosen);
        resolve(undefined);
      };
      this.#awaitingWork.add(chosen);
      signal.addEventListener('abort', givenUp, { once: true });
    });
  }

  #startOne(): void {
    const worker = new WorkerProcess(this.launch, (message) => this.#told(worker, message));
    this.#workers.add(worker);
    void worker.ended.then((end) => {
      this.#workers.delete(worker);
      this.tell.log(`Worker ${worker.pid} ended: ${end} (${worker.exit})`);
      if (this.#closing) return;
      if (end === 'lost') this.tell.lost(new Error(`Worker ${worker.pid} ended by itself, without being asked to`));
      else this.#startOne();
    });
  }

  #told(worker: WorkerProcess, { kind }: WorkerMessage): void {
    if (kind === 'skipped') this.#skipped += 1;
    if (kind !== 'applied' || worker.isAskedToEnd || !this.#hasOthersThan(worker)) return;
    const [first] = this.#awaitingWork;
    first?.(worker);
  }

  #hasOthersThan(worker: WorkerProcess): boolean {
    return [...this.#workers].some((other) => other !== worker && other.hasPartitions && !other.isAskedToEnd);
  }
}
