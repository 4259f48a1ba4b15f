import type { Observer } from 'rxjs';
import type { DeliveryInProgress } from '../shared/delivery.js';
import type { IdempotencyError } from '../shared/errors.js';

/**
 * The last value of the handler, which `subscribe` calls and subscribes to. A kill ends this wait, whatever the handler is doing.
 * `destroy`: what else has to end then.
 */
export function lastValueOf(
  delivery: DeliveryInProgress,
  subscribe: (observer: Observer<unknown>) => void,
  destroy?: (error: IdempotencyError) => void,
): Promise<unknown> {
  return new Promise((resolve, reject) => {
    delivery.onKill((error) => {
      destroy?.(error);
      reject(error);
    });
    let last: unknown;
    delivery.isHandling = true;
    subscribe({
      next: (value: unknown) => (last = value),
      error: (error: unknown) => {
        delivery.isHandling = false;
        reject(error as Error);
      },
      complete: () => {
        delivery.isHandling = false;
        resolve(last);
      },
    });
  });
}
