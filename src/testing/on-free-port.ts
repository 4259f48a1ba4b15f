import { freePort } from './free-port.js';

const TRIES = 5;

/** Starts something on a port that was free a moment ago; if that fails, on another. */
export async function onFreePort<T>(start: (port: number) => Promise<T>): Promise<T> {
  for (let tries = 1; ; tries++) {
    try {
      return await start(await freePort());
    } catch (error) {
      if (tries === TRIES) throw error;
    }
  }
}
