import { UseInterceptors } from '@nestjs/common';
import type { IdempotentBatchOptions } from '../idempotency.options.js';
import { IdempotencyError } from '../shared/errors.js';
import { decoratorOf, markIdempotent, markIdempotentMember, type HandlerDecorator } from './idempotent-metadata.js';
import { IdempotencyInterceptor } from './idempotency.interceptor.js';

/** What both decorators do: check the options, remember them, and bind the interceptor. `check` throws if they are wrong. */
export function bindHandler(
  by: HandlerDecorator,
  options: IdempotentBatchOptions = {},
  check: (where: string) => void,
): MethodDecorator {
  return (target, key, descriptor: PropertyDescriptor | undefined) => {
    const where = `${by} of ${target.constructor?.name ?? '?'}.${String(key)}`;
    if (typeof descriptor?.value !== 'function')
      throw new IdempotencyError(
        'OPTIONS_INVALID',
        `${where} decorates something that is not a method. Put it on the @EventPattern method`,
      );
    const method = descriptor.value as object;
    const other = decoratorOf(method);
    if (other !== undefined && other !== by)
      throw new IdempotencyError(
        'OPTIONS_INVALID',
        `${where} stands beside ${other}: the handler gets either one event or an array of them. Take one of the two away`,
      );
    check(where);
    markIdempotent(method, { by, options });
    markIdempotentMember(target, key, by);
    UseInterceptors(IdempotencyInterceptor)(target, key, descriptor);
  };
}
