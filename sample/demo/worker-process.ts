import { fork, type ChildProcess } from 'node:child_process';
import { once } from 'node:events';
import { setTimeout as sleep } from 'node:timers/promises';
import { fileURLToPath } from 'node:url';
import type { WorkerMessage, WorkerSettings } from './worker-message.js';

/** How long a worker that was asked to stop may take before it is killed. */
const STOP_DEADLINE_MS = 15_000;

export interface WorkerLaunch {
  readonly settings: WorkerSettings;
  readonly env: NodeJS.ProcessEnv;
  /** File descriptor for what the worker prints. */
  readonly output: number;
}

/** How a worker ended. `lost`: by itself, without being asked to. */
export type WorkerEnd = 'killed' | 'stopped' | 'lost';

/** One process of the sample's payments. It ends with this process however this one ends. */
export class WorkerProcess {
  readonly ended: Promise<WorkerEnd>;
  readonly #child: ChildProcess;
  #partitions = 0;
  #asked: 'kill' | 'stop' | undefined;

  constructor({ settings, env, output }: WorkerLaunch, onMessage: (message: WorkerMessage) => void) {
    this.#child = fork(fileURLToPath(new URL('worker.js', import.meta.url)), [JSON.stringify(settings)], {
      execArgv: ['--import', new URL('../end-with-parent.js', import.meta.url).href],
      env,
      stdio: ['ignore', output, output, 'ipc'],
      detached: true, // Ctrl-C in the terminal is for the demo, which then stops its workers
    });
    this.#child.on('message', (message: WorkerMessage) => {
      if (message.kind === 'assigned') this.#partitions = message.partitions;
      onMessage(message);
    });
    this.ended = once(this.#child, 'exit').then(([code, signal]) => this.#endOf(code as number | null, signal));
  }

  get pid(): number | undefined {
    return this.#child.pid;
  }

  /** It has joined the group and got partitions to work on. */
  get hasPartitions(): boolean {
    return this.#partitions > 0;
  }

  get isAskedToEnd(): boolean {
    return this.#asked !== undefined;
  }

  /** SIGKILL: no last word, no commit, no leaving of the group. */
  kill(): Promise<WorkerEnd> {
    this.#asked ??= 'kill';
    this.#child.kill('SIGKILL');
    return this.ended;
  }

  /** SIGTERM: it lets its handlers end, commits and leaves the group. */
  async stop(): Promise<WorkerEnd> {
    this.#asked ??= 'stop';
    this.#child.kill('SIGTERM');
    const deadline = new AbortController();
    const late = sleep(STOP_DEADLINE_MS, 'late' as const, { signal: deadline.signal }).catch(() => undefined);
    const first = await Promise.race([this.ended, late]);
    deadline.abort();
    return first === 'late' ? this.kill() : this.ended;
  }

  /** For the log. */
  get exit(): string {
    return this.#child.signalCode ?? `code ${this.#child.exitCode}`;
  }

  #endOf(code: number | null, signal: unknown): WorkerEnd {
    if (this.#asked !== undefined && signal === 'SIGKILL') return 'killed';
    return this.#asked === 'stop' && (code === 0 || signal === 'SIGTERM') ? 'stopped' : 'lost';
  }
}
