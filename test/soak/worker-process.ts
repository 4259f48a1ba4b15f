import { fork, type ChildProcess } from 'node:child_process';
import { fileURLToPath } from 'node:url';
import { setTimeout as sleep } from 'node:timers/promises';
import type { WorkerPlan, WorkerReport } from './worker.js';

const WORKER = fileURLToPath(new URL('worker.js', import.meta.url));
/** How long a worker that was asked to stop may take before it is killed. */
const STOP_DEADLINE_MS = 20_000;

/** One worker in a process of its own. */
export class WorkerProcess {
  readonly ended: Promise<string>;
  readonly #child: ChildProcess;
  #partitions: readonly string[] = [];
  #asked = false;

  constructor(plan: WorkerPlan, output: number, tell: (report: WorkerReport) => void) {
    this.#child = fork(WORKER, [JSON.stringify(plan)], {
      execArgv: [],
      stdio: ['ignore', output, output, 'ipc'],
      detached: true, // Ctrl-C in the terminal is for the run, which then ends its workers
    });
    this.#child.on('message', (report: WorkerReport) => {
      if (report.kind === 'assigned') this.#partitions = report.partitions;
      tell(report);
    });
    this.ended = new Promise((resolve) =>
      this.#child.once('exit', (code, signal) => resolve(signal ?? `exit code ${code}`)),
    );
  }

  /** What it has been assigned last: `topic/partition`. */
  get partitions(): readonly string[] {
    return this.#partitions;
  }

  /** Its end was wanted. */
  get isAskedToEnd(): boolean {
    return this.#asked;
  }

  async kill(): Promise<void> {
    this.#asked = true;
    this.#child.kill('SIGKILL');
    await this.ended;
  }

  /** SIGTERM: it lets its handlers end, commits and leaves the group. Resolves with how it ended. */
  async stop(): Promise<string> {
    this.#asked = true;
    this.#child.kill('SIGCONT');
    this.#child.kill('SIGTERM');
    const deadline = new AbortController();
    const late = sleep(STOP_DEADLINE_MS, 'late', { signal: deadline.signal }).catch(() => 'early');
    const first = await Promise.race([this.ended, late]);
    deadline.abort();
    if (first !== 'late') return first;
    await this.kill();
    return `still running ${STOP_DEADLINE_MS / 1_000} s after SIGTERM`;
  }

  freeze(): void {
    this.#child.kill('SIGSTOP');
  }

  thaw(): void {
    this.#child.kill('SIGCONT');
  }
}
