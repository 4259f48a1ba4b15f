import { type ChildProcess, spawn } from 'node:child_process';
import { closeSync, openSync } from 'node:fs';
import { setTimeout as sleep } from 'node:timers/promises';
import { killTree, pauseTree, resumeTree } from './process-tree.js';

export interface SpawnOptions {
  command: string;
  args: string[];
  /** File that standard output and error are appended to. */
  log: string;
  env?: NodeJS.ProcessEnv;
  cwd?: string;
  user?: { uid: number; gid: number } | undefined;
  /** How `clearAway` ends it. Default `SIGKILL`. */
  endSignal?: 'SIGKILL' | 'SIGQUIT';
}

export type Exit = { code: number | null; signal: NodeJS.Signals | null };

// The shell registers its own pid and then becomes the program, so the pid stays the same.
const REGISTER_THEN_RUN = 'registry=$1 signal=$2; shift 2; echo "$signal" > "$registry/$$" || exit 97; exec "$@"';

/** One running program of a service. It keeps the process that started it alive only while somebody waits for its end. */
export class ServiceProcess {
  private readonly exited: Promise<Exit>;
  private exit: Exit | undefined;

  private constructor(private readonly child: ChildProcess) {
    this.exited = new Promise((resolve) => {
      const settle = (exit: Exit) => {
        this.exit = exit;
        resolve(exit);
      };
      child.once('exit', (code, signal) => settle({ code, signal }));
      child.once('error', () => settle({ code: 127, signal: null }));
    });
    child.unref();
  }

  static spawn(folder: string, registry: string, options: SpawnOptions): ServiceProcess {
    const { command, args, log, user, endSignal = 'SIGKILL', cwd = folder, env = process.env } = options;
    if (!args.some((arg) => arg.includes(folder))) {
      throw new Error(`${command} would not be known again as ours: none of its arguments names ${folder}.`);
    }
    const output = openSync(log, 'a');
    try {
      const child = spawn('/bin/sh', ['-c', REGISTER_THEN_RUN, 'sh', registry, endSignal, command, ...args], {
        cwd,
        env,
        ...user,
        stdio: ['ignore', output, output],
        detached: true,
      });
      return new ServiceProcess(child);
    } finally {
      closeSync(output);
    }
  }

  get pid(): number {
    return this.child.pid ?? -1;
  }

  get isRunning(): boolean {
    return this.exit === undefined;
  }

  /** Asks it to stop and waits; after `deadlineMs` it is killed. */
  async stop(signal: NodeJS.Signals, deadlineMs: number): Promise<Exit> {
    if (!this.isRunning) return this.ended();
    resumeTree(this.pid);
    this.child.kill(signal);
    const deadline = new AbortController();
    const late = sleep(deadlineMs, 'late', { signal: deadline.signal }).catch(() => 'early');
    await Promise.race([this.ended(), late]);
    deadline.abort();
    return this.kill();
  }

  /** SIGKILL for it and its children, with no time to say good-bye; nothing if it has ended. */
  async kill(): Promise<Exit> {
    if (this.isRunning) await killTree(this.pid);
    return this.ended();
  }

  /** SIGSTOP for it and its children: alive, but nothing answers. */
  pause(): void {
    if (this.isRunning) pauseTree(this.pid);
  }

  resume(): void {
    if (this.isRunning) resumeTree(this.pid);
  }

  /** Resolves when it has ended, by whatever cause. Never rejects. */
  async ended(): Promise<Exit> {
    this.child.ref();
    const exit = await this.exited;
    this.child.unref();
    return exit;
  }
}
