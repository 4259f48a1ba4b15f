import { BadRequestException, ForbiddenException } from '@nestjs/common';
import { RpcException } from '@nestjs/microservices';
import { ValidationError } from 'class-validator';
import { describe, expect, test, vi } from 'vitest';
import { failureOf } from '#src/consumer/failure-policy.js';
import type { Delivery } from '#src/shared/delivery.js';
import { IdempotencyError, NonRetryableError } from '#src/shared/errors.js';

const DELIVERY = { topic: 'orders', attempt: 1 } as Delivery;

function of(error: unknown, classify?: Parameters<typeof failureOf>[1], isOutage = false) {
  return failureOf({ outcome: 'failed', error, isOutage }, classify, DELIVERY);
}

function coded(code: string) {
  return Object.assign(new Error('no'), { code });
}

function validationError() {
  const error = new ValidationError();
  error.property = 'qty';
  error.constraints = { isInt: 'qty must be an integer' };
  return error;
}

describe('permanent: parked at once', () => {
  test.each([
    ['an event without an id', new IdempotencyError('ID_MISSING', 'x'), 'missing-id'],
    ['an id that must not be used', new IdempotencyError('ID_INVALID', 'x'), 'missing-id'],
    ['bytes that do not decode', new IdempotencyError('DECODE_FAILED', 'x'), 'decoding'],
    ['a refused payload', new BadRequestException(['qty must be an integer']), 'permanent'],
    ['class-validator on its own', [validationError()], 'permanent'],
    ['what the handler calls so', new NonRetryableError('no such account'), 'permanent'],
    ['the same as a cause', new Error('charge failed', { cause: new NonRetryableError('no') }), 'permanent'],
    ['the same in an RpcException', new RpcException(new NonRetryableError('no')), 'permanent'],
    ['a record that killed three processes', new IdempotencyError('PROCESS_DIED', 'x'), 'process-death'],
  ])('%s', (_what, error, reason) => {
    expect(of(error)).toEqual({ kind: 'permanent', reason });
  });
});

describe('transient: tried again', () => {
  test.each([
    ['an error', new Error('no')],
    ['a bug', new TypeError('x is undefined')],
    ['nothing', undefined],
    ['a text', 'no'],
    ['an empty list', []],
    ['another HTTP status', new ForbiddenException()],
    ['a unique violation', coded('23505')],
    ['a timeout', new IdempotencyError('HANDLER_TIMEOUT', 'x')],
    ['an idle transaction that PostgreSQL ended', coded('25P03')],
    ['a cancelled statement', coded('57014')],
  ])('%s', (_what, error) => {
    expect(of(error)).toEqual({ kind: 'transient' });
  });

  test.each(['ECONNREFUSED', 'ECONNRESET', '57P01', '53300', '08006'])(
    'F19 %s of a client that the handler made: a dead partner must not stop the consumer',
    (code) => {
      expect(of(coded(code))).toEqual({ kind: 'transient' });
    },
  );
});

describe('infrastructure: waited for', () => {
  test('whatever was seen on our own connection as an outage', () => {
    expect(of(coded('57P01'), undefined, true)).toEqual({ kind: 'infrastructure', of: 'database' });
  });

  test.each(['BROKER_UNAVAILABLE', 'SEND_INCOMPLETE'] as const)('%s of our own Kafka clients', (code) => {
    expect(of(new IdempotencyError(code, 'x'))).toEqual({ kind: 'infrastructure', of: 'broker' });
  });

  test('is never the word of classify', () => {
    expect(of(coded('57P01'), () => 'permanent', true)).toMatchObject({ kind: 'infrastructure' });
  });
});

describe('classify of the options', () => {
  test('decides before the built-in rules, either way', () => {
    expect(of(new Error('no'), () => 'permanent')).toEqual({ kind: 'permanent', reason: 'permanent' });
    expect(of(new NonRetryableError('no'), () => 'transient')).toEqual({ kind: 'transient' });
  });

  test('leaves it to them with undefined', () => {
    expect(of(new NonRetryableError('no'), () => undefined)).toMatchObject({ kind: 'permanent' });
  });

  test('gets the original error and the delivery', () => {
    const classify = vi.fn<() => undefined>(() => undefined);
    const error = new Error('no');
    of(error, classify);
    expect(classify).toHaveBeenCalledExactlyOnceWith(error, DELIVERY);
  });

  test('that throws decides nothing', () => {
    expect(
      of(new NonRetryableError('no'), () => {
        throw new Error('a bug in classify');
      }),
    ).toMatchObject({ kind: 'permanent' });
  });

  test('that answers something else decides nothing', () => {
    expect(of(new Error('no'), (() => 'infrastructure') as never)).toEqual({ kind: 'transient' });
  });

  test('cannot make a record run that killed three processes', () => {
    expect(of(new IdempotencyError('PROCESS_DIED', 'x'), () => 'transient')).toMatchObject({ reason: 'process-death' });
  });
});

test('a value whose getters throw is a transient failure like any other', () => {
  const hostile = new Proxy(
    {},
    {
      get() {
        throw new Error('hostile');
      },
      has() {
        throw new Error('hostile');
      },
    },
  );
  expect(of(hostile)).toEqual({ kind: 'transient' });
  expect(of([hostile])).toEqual({ kind: 'transient' });
});
