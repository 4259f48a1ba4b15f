import { randomInt } from 'node:crypto';
import { setTimeout as sleep } from 'node:timers/promises';
import { until } from 'nestjs-kafka-idempotency/testing';
import type { Service } from './service.js';

const START_DEADLINE_MS = 60_000;

/** Until the signal aborts: at a random moment of its work the service is killed, and started again at once. */
export async function killAtRandom(service: Service, sessionMs: number, signal: AbortSignal): Promise<void> {
  for (;;) {
    await until(() => signal.aborted || service.isAtWork, {
      what: `the ${service.name} to be at work again`,
      timeoutMs: START_DEADLINE_MS,
    });
    await sleep(randomInt(0, 2 * sessionMs), undefined, { signal }).catch(() => undefined); // looked at below
    if (signal.aborted) return;
    await service.killAndRestart();
  }
}
