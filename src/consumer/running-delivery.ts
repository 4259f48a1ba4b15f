import type { Observer } from 'rxjs';
import type { DeliveryInProgress, DeliveryReport } from '../shared/delivery.js';
import { IdempotencyError } from '../shared/errors.js';
import { failedReport } from './failed-report.js';

/** How long a killed delivery may take to say how it ended, before the transport stops waiting for it. */
const GRACE_MS = 1000;

/** A delivery that runs, as whoever waits for Nest's handler sees it: subscribed to what that returned. A class, as whatever lives as long as a transaction. */
export class RunningDelivery implements Observer<unknown> {
  readonly delivery: DeliveryInProgress;
  /** What it is run for, such as a lane: one at a time each. */
  readonly on: object;
  /** When its timeout strikes, by performance.now(). */
  readonly timeoutAt: number;
  #grace: NodeJS.Timeout | undefined;
  #hasEnded = false;

  /** `ended`: called once. Without a report, Nest's handler has come to its end, and what the interceptor reported counts. */
  constructor(
    { delivery, on }: { delivery: DeliveryInProgress; on: object },
    readonly timeoutMs: number,
    private readonly ended: (report: DeliveryReport | undefined) => void,
  ) {
    this.delivery = delivery;
    this.on = on;
    this.timeoutAt = performance.now() + timeoutMs;
  }

  /** What a handler returns is nobody's here. */
  next(): void {}

  complete(): void {
    if (this.#goesOn) this.#killUnended();
    else this.#end(undefined);
  }

  error(error: unknown): void {
    const { delivery } = this;
    if (this.#goesOn) this.#killUnended();
    else this.#end(delivery.reported ?? failedReport(delivery.killed ?? error, delivery));
  }

  endsWith(work: Promise<unknown>): void {
    work.then(
      () => this.complete(),
      (error: unknown) => this.error(error),
    );
  }

  kill(error: IdempotencyError): void {
    const { delivery } = this;
    delivery.kill(error);
    this.#grace ??= setTimeout(() => this.#end(delivery.reported ?? failedReport(error, delivery)), GRACE_MS);
  }

  /** Something in front of the handler, such as a timeout(), gave up while its transaction still runs: that has to end with it. */
  get #goesOn(): boolean {
    return this.delivery.taken && this.delivery.reported === undefined;
  }

  #killUnended(): void {
    this.kill(this.delivery.killed ?? gaveUp(this.delivery));
  }

  #end(report: DeliveryReport | undefined): void {
    if (this.#hasEnded) return; // left behind before: what it says now changes nothing
    this.#hasEnded = true;
    clearTimeout(this.#grace);
    this.ended(report);
  }
}

function gaveUp(delivery: DeliveryInProgress): IdempotencyError {
  const message = `An interceptor or exception filter in front of ${delivery.consumer} ended before it, so its transaction is rolled back. Use the option timeout to limit a handler`;
  return new IdempotencyError('HANDLER_FAILED', message, { retryable: true });
}
