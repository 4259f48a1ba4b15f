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
