import { type ChildProcess, execFileSync, spawn } from 'node:child_process';
import { chown, mkdir, mkdtemp, readdir, realpath, stat } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { REGISTRY, clearAway } from './clear-away.js';
import { pidNamespace, processEntry } from './process-table.js';
import { ServiceProcess, type SpawnOptions } from './service-process.js';

const PREFIX = 'nestjs-kafka-idempotency';

/**
 * The folder of one run, under the system's temp folder, with everything its services write.
 *
 * - Nothing outlives the run: services and folder go with `close()`, with the end of the process that opened it, by
 *   SIGKILL too (a watchdog beside it waits for that), and if the watchdog died as well, with the next run.
 * - The folder's name tells its owner, so there is no moment in which a folder has none.
 * - A service is registered before its program runs, by its own pid, so none can be missed.
 */
export class RunFolder {
  private closing: Promise<void> | undefined;

  private constructor(
    readonly path: string,
    /** Whom services that refuse to be root run as. Undefined if we are not root: then they run as we do. */
    readonly user: User | undefined,
    private readonly watchdog: ChildProcess,
  ) {}

  static async open(): Promise<RunFolder> {
    const parent = await realpath(tmpdir());
    await sweep(parent);
    const user = unprivilegedUser();
    const path = await mkdtemp(join(parent, `${PREFIX}-${ownerName()}-`));
    const folder = new RunFolder(path, user, startWatchdog(path));
    if (user) await chown(path, user.uid, user.gid);
    await folder.makeFolder(REGISTRY);
    return folder;
  }

  /** Pid of the one that clears away when this process ends without `close()`. */
  get watchdogPid(): number | undefined {
    return this.watchdog.pid;
  }

  /** Makes a folder in this one that the service's user may write to, and returns its path. */
  async makeFolder(name: string): Promise<string> {
    const path = join(this.path, name);
    await mkdir(path, { recursive: true, mode: 0o700 });
    if (this.user) await chown(path, this.user.uid, this.user.gid);
    return path;
  }

  /** Runs a program of a service. Its arguments must name a path in this folder: that is how it is known again as ours. */
  spawn(options: SpawnOptions): ServiceProcess {
    return ServiceProcess.spawn(this.path, join(this.path, REGISTRY), options);
  }

  close(): Promise<void> {
    this.closing ??= this.clear();
    return this.closing;
  }

  private async clear(): Promise<void> {
    await clearAway(this.path);
    this.watchdog.kill('SIGKILL');
  }
}

export interface User {
  uid: number;
  gid: number;
}

/** `nobody` is there on every Unix, so nothing has to be created. */
function unprivilegedUser(): User | undefined {
  if (process.getuid?.() !== 0) return undefined;
  const id = (flag: string) => Number(execFileSync('id', [flag, 'nobody'], { encoding: 'utf8' }));
  return { uid: id('-u'), gid: id('-g') };
}

/** Waits as a bare shell, for it costs a megabyte; node comes only when the pipe to this process has closed. */
function startWatchdog(folder: string): ChildProcess {
  const script = fileURLToPath(new URL('./watchdog.js', import.meta.url));
  const wait = 'while read -r line; do :; done; exec "$@"';
  const child = spawn('/bin/sh', ['-c', wait, 'sh', process.execPath, script, folder], {
    stdio: ['pipe', 'ignore', 'ignore'],
    cwd: '/',
    // Its own session: Ctrl-C in the terminal is for the run, not for the one that clears up after it.
    detached: true,
  });
  child.unref();
  (child.stdin as unknown as { unref(): void }).unref();
  return child;
}

/** Clears away what dead runs left behind. What cannot be cleared is reported and does not stop this run. */
async function sweep(parent: string): Promise<void> {
  const names = (await readdir(parent)).filter((name) => name.startsWith(`${PREFIX}-`) && isAbandoned(name));
  for (const name of names) {
    const path = join(parent, name);
    if (!(await mayRemove(path))) continue;
    await clearAway(path).catch((error: unknown) => {
      process.emitWarning(`The folder ${path} of a dead run could not be removed: ${String(error)}`);
    });
  }
}

/** Another user's leftovers are for that user's next run; root may remove all. A file of such a name is a log that somebody kept. */
async function mayRemove(path: string): Promise<boolean> {
  const me = process.getuid?.();
  const owner = await stat(path).catch(() => undefined);
  return owner?.isDirectory() === true && (me === 0 || me === owner.uid);
}

function ownerName(): string {
  const { pid, startedAt } = processEntry(process.pid) ?? { pid: process.pid, startedAt: '0' };
  return `${pidNamespace()}-${pid}-${startedAt}`;
}

/** True for a folder of ours whose owner has ended; a name that tells no owner, or one of another container, is not ours to judge. */
function isAbandoned(name: string): boolean {
  const [namespace, pid, startedAt, ...rest] = name.slice(PREFIX.length + 1).split('-');
  if (rest.length !== 1 || namespace !== pidNamespace()) return false;
  return processEntry(Number(pid))?.startedAt !== startedAt;
}
