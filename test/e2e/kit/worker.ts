import { fork, type ChildProcess } from 'node:child_process';
import { fileURLToPath } from 'node:url';
import type { EventName } from 'nestjs-kafka-idempotency';
import { until } from 'nestjs-kafka-idempotency/testing';
import type { WorkerPlan, WorkerReport } from './child.js';
import type { Place } from './service.js';

const CHILD = fileURLToPath(new URL('./child.js', import.meta.url));

/** A service in a process of its own that can be killed. What it told before it died is kept. */
export class Worker {
  readonly #reports: WorkerReport[] = [];
  readonly #child: ChildProcess;
  #stderr = '';
  #exit: { code: number | null; signal: NodeJS.Signals | null } | undefined;

  /** `execArgv`: Node's own arguments. */
  constructor(
    { schema, group, brokers, databaseUrl }: Place,
    plan: Omit<WorkerPlan, 'place'>,
    execArgv: string[] = [],
  ) {
    const whole: WorkerPlan = { ...plan, place: { schema, group, brokers, databaseUrl } };
    this.#child = fork(CHILD, [JSON.stringify(whole)], { stdio: ['ignore', 'inherit', 'pipe', 'ipc'], execArgv });
    this.#child.on('message', (report) => this.#reports.push(report as WorkerReport));
    this.#child.stderr?.setEncoding('utf8').on('data', (text: string) => {
      this.#stderr += text;
      if (process.env['TEST_LOG']) process.stderr.write(text);
    });
    // 'close' comes when the pipes have ended too, so that nothing it told is missing.
    this.#child.once('close', (code, signal) => (this.#exit = { code, signal }));
  }

  /** Event ids of the handler calls, in their order. */
  get calls(): string[] {
    return this.#reports.flatMap((report) => (report.kind === 'call' ? [report.eventId] : []));
  }

  /** Offsets of the package's events of that name, in their order. */
  offsetsOf(name: EventName): (string | undefined)[] {
    return this.#reports.flatMap((report) => (report.kind === 'event' && report.name === name ? [report.offset] : []));
  }

  /** The most bytes in buffers, and the most records waiting, that it has told. */
  get peak(): { buffers: number; buffered: number } {
    const told = this.#reports.flatMap((report) => (report.kind === 'memory' ? [report] : []));
    return {
      buffers: Math.max(0, ...told.map(({ buffers }) => buffers)),
      buffered: Math.max(0, ...told.map(({ buffered }) => buffered)),
    };
  }

  get isRunning(): boolean {
    return this.#exit === undefined;
  }

  get stderr(): string {
    return this.#stderr;
  }

  async untilEnded(): Promise<{ code: number | null; signal: NodeJS.Signals | null }> {
    return until(() => this.#exit, { what: 'the end of the worker', timeoutMs: 30_000 });
  }

  /** Sends a signal; SIGSTOP freezes it, SIGCONT lets it go on. */
  signal(name: 'SIGSTOP' | 'SIGCONT' | 'SIGTERM'): void {
    this.#child.kill(name);
  }

  /** Closes the application, and nothing else. */
  close(): void {
    this.#child.send('close');
  }

  /** SIGKILL, whatever it is doing. Resolves when it is gone; does nothing if it is already. */
  async kill(): Promise<void> {
    this.#child.kill('SIGKILL');
    await this.untilEnded();
  }
}
