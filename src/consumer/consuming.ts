import { setTimeout as sleep } from 'node:timers/promises';
import { Logger } from '@nestjs/common';
import { backoffMs, type Backoff } from '../shared/backoff.js';
import { within } from '../shared/within.js';
import { Membership, type MembershipParts } from './membership.js';
import type { Subscribed, Subscription } from './subscription.js';

/** How often the cluster is asked for topics: while one is missing, and for regular expressions. */
const MISSING_LOOK_MS = 1000;
const REGEXP_LOOK_MS = 5000;
/** Between a crash of the Kafka client and its successor. */
const REBUILD: Backoff = { delayMs: 500, factor: 2, maxDelayMs: 15_000, jitter: 'none' };
const STABLE_MS = 60_000;
/** Of closing, for what may hang on brokers that do not answer. */
const GIVE_UP_MS = 500;

export interface ConsumingState {
  readonly membership: Membership | undefined;
  readonly subscribed: Subscribed | undefined;
  readonly trouble: { readonly error: unknown; readonly since: Date } | undefined;
  readonly isEnding: boolean;
}

/** Keeps the application in its group: one membership after another, a new one after each crash and whenever there are more topics to read. */
export class Consuming {
  readonly #logger = new Logger('IdempotentKafkaServer');
  readonly #stop = new AbortController();
  #membership: Membership | undefined;
  #subscribed: Subscribed | undefined;
  #trouble: { error: unknown; since: Date } | undefined;
  #running: Promise<void> | undefined;
  #ended: Promise<void> | undefined;

  constructor(
    private readonly parts: MembershipParts,
    private readonly subscription: Subscription,
    private readonly drainMs: number,
  ) {}

  get state(): ConsumingState {
    return {
      membership: this.#membership,
      subscribed: this.#subscribed,
      trouble: this.#trouble,
      isEnding: this.#stop.signal.aborted,
    };
  }

  start(): void {
    this.#running ??= this.#run();
  }

  /** Drains, commits and leaves the group within the drain deadline. Returns the promise already running when called again. */
  end(): Promise<void> {
    return (this.#ended ??= this.#end());
  }

  async #end(): Promise<void> {
    this.#stop.abort();
    await this.#membership?.end(this.drainMs);
    await within(this.#running ?? Promise.resolve(), GIVE_UP_MS); // it may be connecting, with the client's own retries
  }

  async #run(): Promise<void> {
    let crashes = 0;
    while (!this.#stop.signal.aborted) {
      const startedAt = performance.now();
      try {
        await this.#oneMembership();
        crashes = 0;
      } catch (error) {
        if (this.#stop.signal.aborted) return;
        crashes = performance.now() - startedAt > STABLE_MS ? 1 : crashes + 1;
        this.#trouble = { error, since: this.#trouble?.since ?? new Date() };
        const delayMs = backoffMs(REBUILD, crashes);
        const message = (error as Error).message;
        this.#logger.error(
          `The Kafka client failed: ${message}. A new one joins the group in ${delayMs} ms (CONSUMER_CRASHED)`,
        );
        this.parts.brokers.begin('Consuming waits for a new Kafka client', message);
        await this.#wait(delayMs);
      }
    }
  }

  /** Resolves when there are more topics to read or the consumer stops; rejects when the client crashed or could not start. */
  async #oneMembership(): Promise<void> {
    const subscribed = await this.#untilTopics();
    if (subscribed === undefined) return;
    const over = new AbortController();
    const signal = AbortSignal.any([this.#stop.signal, over.signal]);
    const membership = new Membership(this.parts, subscribed.topics);
    this.#membership = membership;
    const crash = membership.crash.then((error): never => {
      throw error;
    });
    try {
      await Promise.race([membership.start(), crash, this.#wait(undefined, signal)]);
      this.#trouble = undefined;
      await Promise.race([this.#untilMoreTopics(subscribed, signal), crash]);
      if (!this.#stop.signal.aborted) await membership.end(this.drainMs);
    } catch (error) {
      await membership.end(0);
      throw error;
    } finally {
      over.abort();
      if (!this.#stop.signal.aborted) this.#membership = undefined;
    }
  }

  async #untilTopics(): Promise<Subscribed | undefined> {
    while (!this.#stop.signal.aborted) {
      this.#subscribed = await this.subscription.look();
      if (this.#subscribed.topics.length > 0) return this.#subscribed;
      await this.#wait(MISSING_LOOK_MS);
    }
    return undefined;
  }

  async #untilMoreTopics(subscribed: Subscribed, signal: AbortSignal): Promise<void> {
    const lookMs = subscribed.missing.length > 0 ? MISSING_LOOK_MS : REGEXP_LOOK_MS;
    while (!signal.aborted) {
      await this.#wait(this.subscription.canGrow(subscribed) ? lookMs : undefined, signal);
      if (signal.aborted) return;
      const now = await this.subscription.look().catch(() => undefined); // brokers away: the fetch loop tells that, the next look comes
      if (now === undefined) continue;
      this.#subscribed = now;
      if (now.topics.some((topic) => !subscribed.topics.includes(topic))) return;
    }
  }

  /** Waits, or for ever without a time, but not beyond the signal. */
  async #wait(ms: number | undefined, signal: AbortSignal = this.#stop.signal): Promise<void> {
    if (ms !== undefined)
      await sleep(ms, undefined, { signal }).catch(() => undefined); // aborted: the caller looks
    else if (!signal.aborted)
      await new Promise<void>((resolve) => signal.addEventListener('abort', () => resolve(), { once: true }));
  }
}
