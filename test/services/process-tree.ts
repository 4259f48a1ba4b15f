import { processEntry, processTable } from './process-table.js';
import { until } from 'nestjs-kafka-idempotency/testing';

/**
 * A process and all below it, treated as one. The parent is stopped before its children are listed, so that it cannot
 * fork one more meanwhile: PostgreSQL's backends outlive a killed postmaster for a moment, hold its port and its shared
 * memory, and so make the next start fail.
 */
export async function killTree(pid: number): Promise<void> {
  const pids = pauseTree(pid);
  for (const each of pids) signal(each, 'SIGKILL');
  await ended(pids);
}

/** SIGSTOP for the whole tree; the pids that were stopped, parents first. */
export function pauseTree(pid: number): number[] {
  if (!signal(pid, 'SIGSTOP')) return [];
  return [pid, ...childrenOf(pid).flatMap(pauseTree)];
}

/** SIGCONT for the whole tree, children first. */
export function resumeTree(pid: number): void {
  childrenOf(pid).forEach(resumeTree);
  signal(pid, 'SIGCONT');
}

/** The process and everything below it, parents first. */
export function treeOf(pid: number): number[] {
  return [pid, ...childrenOf(pid).flatMap(treeOf)];
}

/** Sends a signal; false if the process has ended before. */
export function signal(pid: number, name: NodeJS.Signals): boolean {
  try {
    return process.kill(pid, name);
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'ESRCH') return false;
    throw error;
  }
}

/** Resolves when none of the processes runs any more. */
export async function ended(pids: number[], timeoutMs = 10_000): Promise<void> {
  await until(() => pids.every((pid) => !processEntry(pid)), {
    what: `the end of process ${pids.join(', ')}`,
    timeoutMs,
    intervalMs: 10,
  });
}

function childrenOf(pid: number): number[] {
  return [...processTable().values()].filter((entry) => entry.parent === pid).map((entry) => entry.pid);
}
