import type { MessageHandler } from '@nestjs/microservices';
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
