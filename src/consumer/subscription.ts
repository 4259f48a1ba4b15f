import { Logger } from '@nestjs/common';
import type { ClusterReader } from '../kafka/cluster-reader.js';
import type { HandlerTable } from './handler-table.js';

/** What there is to consume at the moment. */
export interface Subscribed {
  readonly topics: readonly string[];
  /** Exact patterns whose topic does not exist. */
  readonly missing: readonly string[];
}

/**
 * Which of the cluster's topics the handlers want. Topics are always listed first: kafkajs would fail a subscription to a missing topic without
 * naming it, and resolves a regular expression only once.
 */
export class Subscription {
  readonly #logger = new Logger('IdempotentKafkaServer');
  #told = '';

  constructor(
    private readonly handlers: HandlerTable,
    private readonly reader: ClusterReader,
  ) {}

  /** Whether a later look can find more. */
  canGrow(subscribed: Subscribed): boolean {
    return this.handlers.hasRegExp || subscribed.missing.length > 0;
  }

  async look(): Promise<Subscribed> {
    const existing = await this.reader.topics();
    const topics = existing.filter((topic) => this.handlers.matches(topic)).sort();
    const missing = this.handlers.exactTopics.filter((topic) => !existing.includes(topic));
    this.#tell(missing);
    return { topics, missing };
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
