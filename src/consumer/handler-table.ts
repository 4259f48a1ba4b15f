import type { MessageHandler } from '@nestjs/microservices';
import { IdempotencyError } from '../shared/errors.js';
import type { HandlerProfile } from '../shared/handler-profile.js';

/** A handler method of the application as Nest registered it, and what the handler room says of it. */
export interface RegisteredHandler {
  readonly pattern: string | RegExp;
  readonly callback: MessageHandler;
  readonly isEventHandler: boolean;
  readonly profile: HandlerProfile;
}

/**
 * Which handlers a record's topic has. All that match run, in the order of their registration: exact patterns and regular expressions alike,
 * event handlers and request handlers alike.
 */
export class HandlerTable {
  readonly #byTopic = new Map<string, readonly RegisteredHandler[]>();

  constructor(private readonly handlers: readonly RegisteredHandler[]) {}

  get all(): readonly RegisteredHandler[] {
    return this.handlers;
  }

  get exactTopics(): readonly string[] {
    return [...new Set(this.handlers.map(({ pattern }) => pattern).filter((pattern) => typeof pattern === 'string'))];
  }

  get hasRegExp(): boolean {
    return this.handlers.some(({ pattern }) => pattern instanceof RegExp);
  }

  matches(topic: string): boolean {
    return this.handlersOf(topic).length > 0;
  }

  /** What is made of the topic's records is sent in Kafka transactions. */
  isExactlyOnce(topic: string): boolean {
    return this.handlersOf(topic).some(({ profile }) => profile.transaction === 'kafka');
  }

  /** Throws OPTIONS_INVALID if such a handler shares its topic: the transaction of each would need the one offset there is. What regular expressions match is looked at when it comes. */
  checkExactlyOnce(): void {
    for (const topic of this.exactTopics) {
      const error = this.mixed(topic);
      if (error !== undefined) throw error;
    }
  }

  mixed(topic: string): IdempotencyError | undefined {
    const handlers = this.handlersOf(topic);
    if (handlers.length < 2 || !this.isExactlyOnce(topic)) return undefined;
    const names = handlers.map(({ profile }) => profile.consumer).join(', ');
    const message = `Topic ${topic} has several handlers (${names}), and one of them is @KafkaExactlyOnce(): its Kafka transaction holds the offset of the record, which is then done for all. Give it a group, and so an application, of its own`;
    return new IdempotencyError('OPTIONS_INVALID', message);
  }

  handlersOf(topic: string): readonly RegisteredHandler[] {
    let found = this.#byTopic.get(topic);
    if (found === undefined) {
      found = this.handlers.filter(({ pattern }) =>
        typeof pattern === 'string' ? pattern === topic : pattern.test(topic),
      );
      this.#byTopic.set(topic, found);
    }
    return found;
  }
}

/** The pattern without `g` and `y`, whose `lastIndex` would make every second test fail. */
export function statelessRegExp(pattern: RegExp): RegExp {
  return new RegExp(pattern.source, pattern.flags.replace(/[gy]/g, ''));
}
