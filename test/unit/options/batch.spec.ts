import { expect, test } from 'vitest';
import { Idempotent, IdempotentBatch, type IdempotentBatchOptions } from 'nestjs-kafka-idempotency';
import { resolveBatchOptions } from '#src/options/resolve.js';
import { checkOptions } from '#src/options/check.js';

const decorated = (options: unknown) => () => {
  class Billing {
    @IdempotentBatch(options as IdempotentBatchOptions)
    charge(): void {}
  }
  return Billing;
};

test.each([
  [{ maxSize: 0 }, 'maxSize is 0. Give a whole number from 1 to 10000.'],
  [{ maxSize: 10_001 }, 'maxSize is 10001. Give a whole number from 1 to 10000.'],
  [{ maxSize: '500' }, "maxSize is '500'. Give a whole number from 1 to 10000."],
  [{ maxWait: -1 }, 'maxWait is -1. Give a duration from 0 to 30s'],
  [{ maxWait: '31s' }, "maxWait is '31s'. Give a duration from 0 to 30s"],
  [
    { messagesPerTransaction: 10 },
    'messagesPerTransaction is 10, but a batch is one transaction whatever it says. Set maxSize instead.',
  ],
  [{ retry: { delay: '2s', maxDelay: '1s' } }, 'retry.maxDelay'],
  [{ maxsize: 5 }, 'Did you mean maxSize?'],
])('@IdempotentBatch(%j) is refused with what to do, naming the method', (options, told) => {
  expect(decorated(options)).toThrow(told);
  expect(decorated(options)).toThrow('@IdempotentBatch() of Billing.charge');
});

test('it takes all that @Idempotent() takes, and no options at all', () => {
  expect(decorated({ consumer: 'c', maxSize: 1, maxWait: 0, timeout: '1s', holdKey: true })).not.toThrow();
  expect(decorated(undefined)).not.toThrow();
});

test('a batch holds 500 events at most and waits 50 ms for them, unless it is told otherwise', () => {
  expect(resolveBatchOptions({})).toEqual({ maxSize: 500, maxWaitMs: 50 });
  expect(resolveBatchOptions({ maxSize: 7, maxWait: '1s' })).toEqual({ maxSize: 7, maxWaitMs: 1000 });
});

test.each([
  ['below', [Idempotent(), IdempotentBatch()]],
  ['above', [IdempotentBatch(), Idempotent()]],
])('@Idempotent() %s @IdempotentBatch() is refused', (_, [first, second]) => {
  const both = () => {
    class Billing {
      @(second!)
      @(first!)
      charge(): void {}
    }
    return Billing;
  };
  expect(both).toThrow(/stands beside @Idempotent(Batch)?\(\): a handler has one of them/);
});

test('bound twice it acts once, as @Idempotent() does', () => {
  expect(() => {
    class Billing {
      @IdempotentBatch()
      @IdempotentBatch()
      charge(): void {}
    }
    return Billing;
  }).not.toThrow();
});

test('its options in forRoot are told where they belong', () => {
  const kafka = { client: { brokers: ['localhost:9092'] }, consumer: { groupId: 'billing' } };
  expect(() => checkOptions({ kafka, maxSize: 100 })).toThrow('Did you mean maxSize of @IdempotentBatch()?');
});
