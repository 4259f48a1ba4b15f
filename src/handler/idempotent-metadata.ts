import 'reflect-metadata';
import type { IdempotentBatchOptions, KafkaExactlyOnceOptions } from '../idempotency.options.js';

/** Not `nestjs:idempotent`, which belongs to `@nestjs/idempotency`: both may be bound in one application. */
const IDEMPOTENT = Symbol.for('nestjs-kafka-idempotency:idempotent');

/** A decorator of ours that gives a handler its transaction, as a user writes it. */
export type HandlerDecorator = '@Idempotent()' | '@IdempotentBatch()' | '@KafkaExactlyOnce()';

/** Those of the decorator that stands there. */
export type MarkOptions = IdempotentBatchOptions & KafkaExactlyOnceOptions;

interface Mark {
  readonly by: HandlerDecorator;
  readonly options: MarkOptions;
}

export function markIdempotent(method: object, mark: Mark): void {
  Reflect.defineMetadata(IDEMPOTENT, mark, method);
}

/** The options a method was decorated with, undefined if it was not. Which of them those are {@link decoratorOf} says. */
export function idempotentOptionsOf(method: object): MarkOptions | undefined {
  return markOf(method)?.options;
}

export function decoratorOf(method: object): HandlerDecorator | undefined {
  return markOf(method)?.by;
}

/** Remembers the member too: a decorator that puts a new function in its place takes the method's own metadata away. */
export function markIdempotentMember(prototype: object, name: string | symbol, by: HandlerDecorator): void {
  Reflect.defineMetadata(IDEMPOTENT, by, prototype, name);
}

export function memberDecoratorOf(prototype: object, name: string): HandlerDecorator | undefined {
  return Reflect.getOwnMetadata(IDEMPOTENT, prototype, name) as HandlerDecorator | undefined;
}

function markOf(method: object): Mark | undefined {
  return Reflect.getMetadata(IDEMPOTENT, method) as Mark | undefined;
}
