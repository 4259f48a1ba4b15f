import type { KafkaExactlyOnceOptions } from '../idempotency.options.js';
import { checkExactlyOnceOptions } from '../options/check.js';
import { bindHandler } from './bind-handler.js';
import { ExactlyOnceInterceptor } from './exactly-once.interceptor.js';

/**
 * For an `@EventPattern` handler that reads events and publishes others, and changes no database: what it publishes by {@link EventPublisher} and the offset of its record are committed in one
 * Kafka transaction, so consumers that read committed see the output of each record once. Up to `maxSize` records that wait share a transaction.
 *
 * It covers Kafka and nothing else: a handler that also writes to a database writes again whenever its transaction is repeated. It is the only handler of its topic.
 *
 * Throws OPTIONS_INVALID when the options are wrong, it decorates anything but a method, or `@Idempotent()` stands there too.
 */
export function KafkaExactlyOnce(options?: KafkaExactlyOnceOptions): MethodDecorator {
  return bindHandler('@KafkaExactlyOnce()', {
    options,
    check: (where) => checkExactlyOnceOptions(options, where),
    interceptor: ExactlyOnceInterceptor,
  });
}
