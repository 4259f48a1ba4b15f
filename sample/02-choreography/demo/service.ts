import { fork, type ChildProcess } from 'node:child_process';
import { once } from 'node:events';
import { setTimeout as sleep } from 'node:timers/promises';
import { fileURLToPath } from 'node:url';
import type { LogFile } from '../../demo/log-file.js';
import type { ServiceMessage } from './tell.js';

const STOP_DEADLINE_MS = 15_000;

export interface ServiceLaunch {
  readonly name: 'shop' | 'warehouse';
  readonly env: NodeJS.ProcessEnv;
  readonly log: LogFile;
  /** It ended without being asked to. */
  readonly lost: (error: Error) => void;
}

/** One of the two services: a process that is started again whenever it was killed, until the service is closed. */
export class Service {
  #child: ChildProcess | undefined;
  #isAsked = false;
  #isAtWork = false;
  #hasPartitions = false;
  #kills = 0;
  #skipped = 0;

  constructor(private readonly launch: ServiceLaunch) {}

  get name(): string {
    return this.launch.name;
  }
  get kills(): number {
    return this.#kills;
  }
  /** Events that had been handled before, as far as it lived to tell. */
  get skipped(): number {
    return this.#skipped;
  }
  /** Since its last start it has handled an event, or skipped one. */
  get isAtWork(): boolean {
    return this.#isAtWork;
  }

  /** It has joined its group. */
  get hasPartitions(): boolean {
    return this.#hasPartitions;
  }

  start(): void {
    const { name, env, log, lost } = this.launch;
    const preloaded = ['../../end-with-parent.js', './tell.js'].map((file) => new URL(file, import.meta.url).href);
    const child = fork(fileURLToPath(new URL(`../${name}/main.js`, import.meta.url)), {
      execArgv: preloaded.flatMap((url) => ['--import', url]),
      env,
      stdio: ['ignore', log.descriptor, log.descriptor, 'ipc'],
      detached: true, // Ctrl-C in the terminal is for the demo, which then stops its services
    });
    [this.#child, this.#isAsked, this.#isAtWork] = [child, false, false];
    log.write(`The ${name} is started: process ${child.pid}`);
    child.on('message', (message: ServiceMessage) => this.#told(message));
    child.once('exit', (code, signal) => {
      log.write(`The ${name}, process ${child.pid}, ended: ${signal ?? `code ${code}`}`);
      if (!this.#isAsked) lost(new Error(`The ${name} ended by itself, with ${signal ?? `code ${code}`}`));
    });
  }

  /** SIGKILL: no last word, no commit, nothing more is sent. */
  async killAndRestart(): Promise<void> {
    await this.#end('SIGKILL');
    this.#kills += 1;
    this.start();
  }

  /** SIGTERM: it lets its handlers end, commits, sends what it has begun to send. Gives whether it did, in time and without an error. */
  async stop(): Promise<boolean> {
    const deadline = new AbortController();
    const late = sleep(STOP_DEADLINE_MS, 'late', { signal: deadline.signal }).catch(() => 'early');
    const ended = this.#end('SIGTERM');
    const first = await Promise.race([ended, late]);
    deadline.abort();
    if (first === 'late') await this.kill();
    return first === 'SIGTERM' || first === 'code 0';
  }

  async kill(): Promise<void> {
    await this.#end('SIGKILL');
  }

  async #end(signal: 'SIGKILL' | 'SIGTERM'): Promise<string> {
    const child = this.#child;
    if (child === undefined) return 'code 0';
    this.#isAsked = true;
    const ended = child.exitCode === null && child.signalCode === null ? once(child, 'exit') : undefined;
    child.kill(signal);
    await ended;
    return child.signalCode ?? `code ${child.exitCode}`;
  }

  #told({ kind }: ServiceMessage): void {
    this.#hasPartitions = true;
    if (kind === 'assigned') return;
    this.#isAtWork = true;
    if (kind === 'duplicate') this.#skipped += 1;
  }
}
