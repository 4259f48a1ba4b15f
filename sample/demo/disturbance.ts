import { setTimeout as sleep } from 'node:timers/promises';
import type { Pace } from './pace.js';
import type { WorkerEnd } from './worker-process.js';
import type { Workers } from './workers.js';

/** Until the signal aborts: kills a worker at its work again and again, and once asks one to stop. Resolves with how that one ended. */
export async function disturb(workers: Workers, pace: Pace, signal: AbortSignal): Promise<WorkerEnd | undefined> {
  const [, stopped] = await Promise.all([
    killAgainAndAgain(workers, pace.killEveryMs, signal),
    stopOnce(workers, pace.stopAfterMs, signal),
  ]);
  return stopped;
}

/** A kill that had to wait for somebody at work is made up for, but the group gets half an interval in any case. */
async function killAgainAndAgain(workers: Workers, everyMs: number, signal: AbortSignal): Promise<void> {
  for (let dueAt = performance.now() + everyMs; ; dueAt += everyMs) {
    await wait(Math.max(everyMs / 2, dueAt - performance.now()), signal);
    if ((await workers.killNext(signal)) === undefined) return;
  }
}

async function stopOnce(workers: Workers, afterMs: number, signal: AbortSignal): Promise<WorkerEnd | undefined> {
  await wait(afterMs, signal);
  return workers.stopNext(signal);
}

/** Not beyond the signal, which the callers look at. */
async function wait(ms: number, signal: AbortSignal): Promise<void> {
  await sleep(ms, undefined, { signal }).catch(() => undefined);
}
