import { setTimeout as sleep } from 'node:timers/promises';

/** Waits for the work, but no longer than that. A rejection of the work is thrown while it is waited for, and left alone afterwards. */
export async function within(work: Promise<unknown>, ms: number): Promise<void> {
  const timer = new AbortController();
  const timeUp = sleep(ms, undefined, { signal: timer.signal }).catch(() => undefined);
  await Promise.race([work, timeUp]).finally(() => timer.abort());
}
