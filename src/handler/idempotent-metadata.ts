import 'reflect-metadata';
import type { IdempotentOptions } from '../idempotency.options.js';

/** Not `nestjs:idempotent`, which belongs to `@nestjs/idempotency`: both may be bound in one application. */
const IDEMPOTENT = Symbol.for('nestjs-kafka-idempotency:idempotent');

export function markIdempotent(method: object, options: IdempotentOptions): void {
  Reflect.defineMetadata(IDEMPOTENT, options, method);
}

/** The options a method was decorated with, undefined if it was not. */
export function idempotentOptionsOf(method: object): IdempotentOptions | undefined {
  return Reflect.getMetadata(IDEMPOTENT, method) as IdempotentOptions | undefined;
}

/** Remembers the member too: a decorator that puts a new function in its place takes the method's own metadata away. */
export function markIdempotentMember(prototype: object, name: string | symbol): void {
  Reflect.defineMetadata(IDEMPOTENT, true, prototype, name);
}

export function isIdempotentMember(prototype: object, name: string): boolean {
  return Reflect.getOwnMetadata(IDEMPOTENT, prototype, name) === true;
}
