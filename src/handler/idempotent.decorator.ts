import { UseInterceptors } from '@nestjs/common';
import type { IdempotentOptions } from '../idempotency.options.js';
import { checkIdempotentOptions } from '../options/check.js';
import { IdempotencyError } from '../shared/errors.js';
import { markIdempotent, markIdempotentMember } from './idempotent-metadata.js';
import { IdempotencyInterceptor } from './idempotency.interceptor.js';

/**
 * Gives an `@EventPattern` handler exactly-once effects: the handler and its `processed_events` row share one PostgreSQL transaction, and the
 * record's offset is committed only after it. Stands beside `@EventPattern`, in either order; bound twice, it acts once.
 *
 * Throws OPTIONS_INVALID when the options are wrong or it decorates anything but a method.
 */
export function Idempotent(options?: IdempotentOptions): MethodDecorator {
  return (target, key, descriptor: PropertyDescriptor | undefined) => {
    const where = `@Idempotent() of ${target.constructor?.name ?? '?'}.${String(key)}`;
    if (typeof descriptor?.value !== 'function')
      throw new IdempotencyError(
        'OPTIONS_INVALID',
        `${where} decorates something that is not a method. Put it on the @EventPattern method`,
      );
    checkIdempotentOptions(options, where);
    markIdempotent(descriptor.value as object, options ?? {});
    markIdempotentMember(target, key);
    UseInterceptors(IdempotencyInterceptor)(target, key, descriptor);
  };
}
