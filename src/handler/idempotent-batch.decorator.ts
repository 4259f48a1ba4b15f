import type { IdempotentBatchOptions } from '../idempotency.options.js';
import { checkBatchOptions } from '../options/check.js';
import { bindHandler } from './bind-handler.js';
import { IdempotencyInterceptor } from './idempotency.interceptor.js';

/**
 * As {@link Idempotent}, for a handler that takes many events at once: `@Payload()` is the array of the events of consecutive records of a partition that were not handled
 * before, in their order, all in one transaction. It is never empty, and no event is in it twice; `@Ctx()` is a {@link BatchContext}.
 *
 * A handler that throws {@link BatchItemError} names the item that failed; for anything else that it throws, and for a COMMIT that is refused, the batch is divided in halves until the
 * failing events are found. Only those are tried again, each as an array of one, and parked.
 *
 * Throws OPTIONS_INVALID when the options are wrong, it decorates anything but a method, or `@Idempotent()` stands there too.
 */
export function IdempotentBatch(options?: IdempotentBatchOptions): MethodDecorator {
  return bindHandler('@IdempotentBatch()', {
    options,
    check: (where) => checkBatchOptions(options, where),
    interceptor: IdempotencyInterceptor,
  });
}
