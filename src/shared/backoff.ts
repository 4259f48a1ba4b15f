export interface Backoff {
  readonly delayMs: number;
  readonly factor: number;
  readonly maxDelayMs: number;
  /** 'full': anything between 0 and the computed delay, so that many instances do not retry in step. */
  readonly jitter: 'full' | 'none';
}

/** Milliseconds to wait before try `attempt + 1`, when `attempt` tries (1 or more) have failed. `random` gives numbers in [0, 1). */
export function backoffMs(backoff: Backoff, attempt: number, random: () => number = Math.random): number {
  const ceiling = Math.min(backoff.maxDelayMs, backoff.delayMs * backoff.factor ** (attempt - 1));
  return backoff.jitter === 'full' ? Math.round(ceiling * random()) : ceiling;
}
