import { randomInt, randomUUID } from 'node:crypto';
import { setTimeout as sleep } from 'node:timers/promises';

const AT_ONCE = 8;
const PEOPLE = 20;
/** Every so many orders are sent once more although they were answered. */
const EVERY_TWICE = 5;
const AGAIN_MS = 200;
const PATIENCE_MS = 5_000;

/** People who order over HTTP, evenly over a time. An order that got no answer is sent again under its id until it gets one. */
export class Customers {
  readonly #taken = new Map<string, number>();
  #repeated = 0;

  constructor(private readonly url: string) {}

  /** Cents by the id of each order that was answered. */
  get taken(): ReadonlyMap<string, number> {
    return this.#taken;
  }

  /** Requests beyond the first of an order. */
  get repeated(): number {
    return this.#repeated;
  }

  /** Resolves when every order was answered; rejects when the signal aborts. */
  async orderAll(orders: number, flowMs: number, signal: AbortSignal): Promise<void> {
    const startedAt = performance.now();
    let next = 0;
    const oneAfterTheOther = async () => {
      while (next < orders) {
        const number = next++;
        await sleep(Math.max(0, startedAt + (number / orders) * flowMs - performance.now()), undefined, {
          signal,
        });
        await this.order(number, signal);
      }
    };
    await Promise.all(Array.from({ length: AT_ONCE }, oneAfterTheOther));
  }

  /** Resolves when it was answered. */
  async order(number: number, signal: AbortSignal): Promise<void> {
    const order = { id: randomUUID(), customer: `customer-${number % PEOPLE}`, cents: randomInt(100, 10_000) };
    while (!(await this.#post(order, signal))) {
      this.#repeated += 1;
      await sleep(AGAIN_MS, undefined, { signal });
    }
    this.#taken.set(order.id, order.cents);
    if (number % EVERY_TWICE !== 0) return;
    this.#repeated += 1;
    await this.#post(order, signal);
  }

  /** Gives whether the shop has it. Without an answer nobody knows. */
  async #post(order: object, signal: AbortSignal): Promise<boolean> {
    try {
      const response = await fetch(`${this.url}/orders`, {
        method: 'POST',
        headers: { 'content-type': 'application/json' },
        body: JSON.stringify(order),
        signal: AbortSignal.any([signal, AbortSignal.timeout(PATIENCE_MS)]),
      });
      await response.arrayBuffer();
      return response.status === 202;
    } catch {
      return false; // the shop is down, or was killed over it
    }
  }
}
