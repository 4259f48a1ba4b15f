import { Logger } from '@nestjs/common';
import { LEADERLESS, typeOf } from '../kafka/broker-answer.js';
import type { ClusterReader } from '../kafka/cluster-reader.js';
import type { HandlerTable } from './handler-table.js';

/** What there is to consume at the moment. */
export interface Subscribed {
  readonly topics: readonly string[];
  /** Exact patterns whose topic does not exist. */
  readonly missing: readonly string[];
}

/**
 * Which of the cluster's topics the handlers want. Topics are always looked up first: kafkajs would fail a subscription to a missing topic without
 * naming it, and resolves a regular expression only once.
 */
export class Subscription {
  readonly #logger = new Logger('IdempotentKafkaServer');
  #told = '';
  #listed: readonly string[] | undefined;

  constructor(
    private readonly handlers: HandlerTable,
    private readonly reader: ClusterReader,
  ) {}

  /** Whether a later look can find more. */
  canGrow(subscribed: Subscribed): boolean {
    return this.handlers.hasRegExp || subscribed.missing.length > 0;
  }

  async look(): Promise<Subscribed> {
    const { exactTopics, hasRegExp } = this.handlers;
    const exact = await this.reader.existing(exactTopics);
    const matching = hasRegExp ? (await this.#all()).filter((topic) => this.handlers.matches(topic)) : [];
    const missing = exactTopics.filter((topic) => !exact.includes(topic));
    this.#tell(missing);
    return { topics: [...new Set([...exact, ...matching])].sort(), missing };
  }

  /** While somebody's topic has no leader the cluster cannot be listed: then those that were there before. */
  async #all(): Promise<readonly string[]> {
    try {
      return (this.#listed = await this.reader.topics());
    } catch (error) {
      if (this.#listed === undefined || typeOf(error) !== LEADERLESS) throw error;
      return this.#listed;
    }
  }

  #tell(missing: readonly string[]): void {
    const names = missing.join(', ');
    if (names === this.#told) return;
    this.#told = names;
    if (missing.length > 0)
      this.#logger.warn(
        `Waiting for missing topic(s) ${names}: create them, they are consumed as soon as they exist (TOPIC_MISSING)`,
      );
  }
}
