import type { LogFile } from './log-file.js';

export type Closing = () => Promise<unknown>;

/** In the reverse order of opening. One that fails is logged and does not keep the others from closing. */
export async function closeAll(closings: readonly Closing[], log: LogFile): Promise<void> {
  for (const close of closings.toReversed()) {
    await close().catch((error: unknown) => log.write(`Clearing up failed: ${String(error)}`));
  }
}
