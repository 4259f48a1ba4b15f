import { BadRequestException } from '@nestjs/common';
import { RpcException } from '@nestjs/microservices';
import { describe, expect, it } from 'vitest';
import { IdempotencyError, NonRetryableError } from '#src/shared/errors.js';
import { noteOf } from '#src/shared/failed-attempt.js';

const at = new Date(0);

describe('the note of a failed attempt', () => {
  it.each([
    ['an error of this package', new IdempotencyError('ID_MISSING', 'x'), 'ID_MISSING'],
    ['one that wraps such an error', new Error('x', { cause: new NonRetryableError('y') }), 'NON_RETRYABLE'],
    ['a failed validation', new BadRequestException(['qty must be a number']), 'VALIDATION_FAILED'],
    ['a failed validation in an RpcException', new RpcException(new BadRequestException()), 'VALIDATION_FAILED'],
    [
      'a serialization failure',
      Object.assign(new Error('x'), { driverError: { code: '40001' } }),
      'SERIALIZATION_FAILED',
    ],
    ['a deadlock', Object.assign(new Error('x'), { code: '40P01' }), 'SERIALIZATION_FAILED'],
    ['anything else', new TypeError('x'), 'HANDLER_FAILED'],
    ['a string', 'x', 'HANDLER_FAILED'],
  ])('tells the code of %s', (_, error, code) => {
    expect(noteOf(error, at)).toMatchObject({ at, code });
  });

  it('B40: keeps one line of at most 1024 bytes, and cuts no character in two', () => {
    const { message } = noteOf(new Error(`a\r\nb\0c\u2028${'é€😀'.repeat(1000)}`), at);
    expect(message).toMatch(/^a b c é€😀/);
    expect(message).not.toContain('\uFFFD');
    const bytes = Buffer.byteLength(message);
    expect(bytes).toBeLessThanOrEqual(1024);
    expect(bytes).toBeGreaterThan(1020);
  });

  it('makes valid Unicode of a lone surrogate, which jsonb refuses', () => {
    expect(noteOf(new Error('a\uD800b'), at).message).toBe('a\uFFFDb');
  });

  it.each([
    ['undefined', undefined, 'undefined', ''],
    ['null', null, 'object', ''],
    ['a string', 'no', 'string', 'no'],
    ['an object with a message', { message: 'no' }, 'Object', 'no'],
    ['an object without a prototype', Object.create(null), 'object', ''],
    ['a message that is no text', { name: 5, message: { a: 1 } }, 'Object', ''],
  ])('survives %s', (_, thrown, name, message) => {
    expect(noteOf(thrown, at)).toEqual({ at, code: 'HANDLER_FAILED', name, message });
  });

  it('survives getters and proxies that throw', () => {
    const thrower = (): never => {
      throw new Error('mine');
    };
    const getters = Object.defineProperties(new Error('x'), {
      name: { get: thrower },
      message: { get: thrower },
      cause: { get: thrower },
      code: { get: thrower },
    });
    expect(noteOf(getters, at)).toEqual({ at, code: 'HANDLER_FAILED', name: 'Error', message: '' });
    const proxy = new Proxy({}, { get: thrower, has: thrower, getPrototypeOf: thrower });
    expect(noteOf(proxy, at)).toMatchObject({ code: 'HANDLER_FAILED', message: '' });
  });
});
