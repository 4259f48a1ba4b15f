import type { IdempotentOptions } from '../idempotency.options.js';
import { checkIdempotentOptions } from '../options/check.js';
import { bindHandler } from './bind-handler.js';
import { IdempotencyInterceptor } from './idempotency.interceptor.js';

/**
 * Gives an `@EventPattern` handler exactly-once effects: the handler and its `processed_events` row share one PostgreSQL transaction, and the
 * record's offset is committed only after it. Stands beside `@EventPattern`, in either order; bound twice, it acts once.
 *
 * Throws OPTIONS_INVALID when the options are wrong or it decorates anything but a method.
 */
export function Idempotent(options?: IdempotentOptions): MethodDecorator {
  return bindHandler('@Idempotent()', {
    options,
    check: (where) => checkIdempotentOptions(options, where),
    interceptor: IdempotencyInterceptor,
  });
}
