import type { Observer } from 'rxjs';
import type { DeliveryInProgress } from '../shared/delivery.js';

/** Takes what a handler gives. A class, as whatever lives as long as a transaction. */
export class LastValue implements Observer<unknown> {
  #last: unknown;

  constructor(
    private readonly delivery: DeliveryInProgress,
    private readonly done: (last: unknown) => void,
    private readonly failed: (error: unknown) => void,
  ) {}

  next(value: unknown): void {
    this.#last = value;
  }

  error(error: unknown): void {
    this.delivery.isHandling = false;
    this.failed(error);
  }

  complete(): void {
    this.delivery.isHandling = false;
    this.done(this.#last);
  }
}
