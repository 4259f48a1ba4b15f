import { describe, expect, it } from 'vitest';
import { payload } from '#src/handler/identity/payload.js';
import { IdempotencyError } from '#src/shared/errors.js';
import { record, thrown } from './record.js';

const at = (path: string, decoded: unknown) => payload(path)(record({ decoded }));

describe('payload()', () => {
  it.each([
    ['a string', 'id', { id: 'a' }, 'a'],
    ['a nested string', 'meta.id', { meta: { id: 'a' } }, 'a'],
    ['an item of a list', 'items.1.id', { items: [{ id: 'a' }, { id: 'b' }] }, 'b'],
    ['a whole number', 'id', { id: 7 }, '7'],
    ['a negative number', 'id', { id: -7 }, '-7'],
    ['zero', 'id', { id: 0 }, '0'],
    ['the largest exact number', 'id', { id: Number.MAX_SAFE_INTEGER }, '9007199254740991'],
    ['a bigint', 'id', { id: 2n ** 64n }, '18446744073709551616'],
    ['a property that is called like one of Object', 'constructor', { constructor: 'a' }, 'a'],
  ])('gives %s', (_, path, decoded, id) => {
    expect(at(path, decoded)).toBe(id);
  });

  it.each([
    ['the property is missing', 'id', {}],
    ['the property is null', 'id', { id: null }],
    ['the way there is missing', 'meta.id', {}],
    ['the way there is null', 'meta.id', { meta: null }],
    ['the way there is a string', 'meta.length', { meta: 'abc' }],
    ['the payload is null', 'id', null],
    ['the payload is a number', 'id', 5],
    ['the payload is a Buffer', 'id', Buffer.from('abc')],
    ['only the prototype has it', 'constructor.name', {}],
    ['only a polluted prototype has it', 'id', Object.create({ id: 'a' })],
    ['it is the length of a list', 'items.length', { items: [1, 2] }],
    ['it is __proto__', '__proto__.id', { id: 'a' }],
  ])('has nothing when %s', (_, path, decoded) => {
    expect(at(path, decoded)).toBeUndefined();
  });

  it.each([
    ['a number beyond 2^53', 2 ** 53, 'no exact integer'],
    ['a fraction', 1.5, 'no exact integer'],
    ['a boolean', true, 'type boolean'],
    ['a list', ['a'], 'an array'],
    ['an object', { a: 1 }, 'type object'],
    ['an empty string', '', 'is empty'],
    ['a lone surrogate', 'a\udc00', 'lone surrogate'],
    ['a control character', 'a\u0000', 'control character'],
  ])('refuses %s', (_, id, reason) => {
    const error = thrown(() => at('id', { id }));
    expect(error.code).toBe('ID_INVALID');
    expect(error.message).toContain("payload 'id'");
    expect(error.message).toContain(reason);
  });

  it('keeps apart what JSON.parse would have rounded to one number', () => {
    const value = (digits: string) => record({ value: `{"id":${digits}}` });
    expect(thrown(() => payload('id')(value('9007199254740993'))).code).toBe('ID_INVALID');
    expect(thrown(() => payload('id')(value('9007199254740992'))).code).toBe('ID_INVALID');
  });

  it('passes a decoding failure on as it is', () => {
    const failure = new IdempotencyError('DECODE_FAILED', 'not JSON');
    const broken = {
      ...record(),
      decoded: () => {
        throw failure;
      },
    };
    expect(thrown(() => payload('id')(broken))).toBe(failure);
  });

  it.each(['', '.', 'a.', '.a', 'a..b', undefined, 5])('refuses the path %j where it is written', (path) => {
    expect(thrown(() => payload(path as string)).code).toBe('OPTIONS_INVALID');
  });
});
