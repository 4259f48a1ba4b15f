import { UseInterceptors, type NestInterceptor, type Type } from '@nestjs/common';
import { IdempotencyError } from '../shared/errors.js';
import {
  decoratorOf,
  markIdempotent,
  markIdempotentMember,
  type HandlerDecorator,
  type MarkOptions,
} from './idempotent-metadata.js';

/** What our decorators do: check the options, remember them, and bind the interceptor. `check` throws if they are wrong. */
export function bindHandler(
  by: HandlerDecorator,
  {
    options = {},
    check,
    interceptor,
  }: { options: MarkOptions | undefined; check: (where: string) => void; interceptor: Type<NestInterceptor> },
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
        `${where} stands beside ${other}: a handler has one of them. Take one of the two away`,
      );
    check(where);
    markIdempotent(method, { by, options });
    markIdempotentMember(target, key, by);
    UseInterceptors(interceptor)(target, key, descriptor);
  };
}
