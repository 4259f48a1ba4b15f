import { setTimeout as sleep } from 'node:timers/promises';

/** Waits for the work, but no longer than that; false: it has not ended. A rejection of the work is thrown while it is waited for, and left alone afterwards. */
export async function within(work: Promise<unknown>, ms: number): Promise<boolean> {
  const timer = new AbortController();
  const timeUp = sleep(ms, false, { signal: timer.signal }).catch(() => false); // aborted below: nobody waits for it any more
  return Promise.race([work.then(() => true), timeUp]).finally(() => timer.abort());
}
