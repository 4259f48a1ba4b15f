import { execFile } from 'node:child_process';
import { readFile, readdir, rename, rm } from 'node:fs/promises';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { commandLineOf, processEntry } from './process-table.js';
import { ended, killTree, resumeTree, signal, treeOf } from './process-tree.js';

const run = promisify(execFile);

/** Where the services of a run folder register themselves: a file per process, named by its pid. */
export const REGISTRY = 'processes';
const CLOSED_REGISTRY = 'processes.closed';

/** Holds `{ project, file }` while a compose project of this run is up. */
export const COMPOSE_FILE = 'compose.json';

/**
 * Ends every service of a run folder and removes the folder. Called by the run itself at its end, by its watchdog when
 * it was killed, and by the next run when both were; harmless when two do it at once.
 *
 * - Only processes that registered in this folder are ended, by pid, and only if their command line still names the
 *   folder: a pid that was given to somebody else since is left alone.
 * - The registry is closed first (its folder renamed), so a service about to start fails to register and never runs.
 */
export async function clearAway(folder: string): Promise<void> {
  const registry = join(folder, CLOSED_REGISTRY);
  await rename(join(folder, REGISTRY), registry).catch(ignoreMissing);
  for (const name of await readdir(registry).catch(emptyIfMissing)) {
    const endSignal = await readFile(join(registry, name), 'utf8').catch(() => '');
    await endProcess(folder, Number(name), endSignal.trim());
  }
  await downCompose(folder);
  await removeSharedMemory(folder);
  await rm(folder, { recursive: true, force: true, maxRetries: 10, retryDelay: 50 });
}

/** PostgreSQL gives its shared memory back only when asked to stop; the JVM takes SIGQUIT as a request for a thread dump. */
async function endProcess(folder: string, pid: number, endSignal: string): Promise<void> {
  if (!commandLineOf(pid).includes(folder)) return;
  if (endSignal === 'SIGQUIT') {
    const pids = treeOf(pid);
    resumeTree(pid);
    signal(pid, 'SIGQUIT');
    // What does not go by itself is killed in the next line.
    await ended(pids, 5_000).catch(() => undefined);
  }
  if (processEntry(pid)) await killTree(pid);
}

async function downCompose(folder: string): Promise<void> {
  const text = await readFile(join(folder, COMPOSE_FILE), 'utf8').catch(() => '');
  if (text === '') return;
  const { project, file } = JSON.parse(text) as { project: string; file: string };
  await run('docker', [
    'compose',
    '-p',
    project,
    '-f',
    file,
    'down',
    '--volumes',
    '--remove-orphans',
    '--timeout',
    '5',
  ]);
}

/** A killed PostgreSQL leaves a few bytes of System V memory, named in the seventh line of its postmaster.pid. */
async function removeSharedMemory(folder: string): Promise<void> {
  for (const name of await readdir(folder).catch(emptyIfMissing)) {
    const lines = (await readFile(join(folder, name, 'data', 'postmaster.pid'), 'utf8').catch(() => '')).split('\n');
    const id = lines[6]?.trim().split(/\s+/)[1];
    // Gone already, or no ipcrm here: the folder matters more.
    if (id) await run('ipcrm', ['-m', id]).catch(() => undefined);
  }
}

function ignoreMissing(error: NodeJS.ErrnoException): void {
  if (error.code !== 'ENOENT') throw error;
}

function emptyIfMissing(error: NodeJS.ErrnoException): string[] {
  ignoreMissing(error);
  return [];
}
