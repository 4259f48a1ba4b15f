import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { firstOf, join } from '#src/handler/identity/compose.js';
import { header } from '#src/handler/identity/header.js';
import { position, recordKey } from '#src/handler/identity/record-parts.js';
import { record, thrown } from './record.js';

describe('firstOf()', () => {
  it('gives the first id there is', () => {
    const id = firstOf(header('a'), header('b'), position());
    expect(id(record({ headers: { a: '1', b: '2' } }))).toBe('1');
    expect(id(record({ headers: { b: '2' } }))).toBe('2');
    expect(id(record())).toBe('orders|3|42|1700000000000');
  });

  it('has nothing when no source has anything', () => {
    expect(firstOf(header('a'), recordKey())(record())).toBeUndefined();
  });

  it('does not go on behind an id that must not be used', () => {
    const id = firstOf(header('a'), position());
    expect(thrown(() => id(record({ headers: { a: ['1', '2'] } }))).code).toBe('ID_INVALID');
  });

  it('asks no source behind the one that answered', () => {
    const id = firstOf(header('a'), () => {
      throw new Error('asked');
    });
    expect(id(record({ headers: { a: '1' } }))).toBe('1');
  });
});

describe('join()', () => {
  it('has nothing when a part is missing', () => {
    expect(join(header('a'), header('b'))(record({ headers: { a: '1' } }))).toBeUndefined();
  });

  it.each([
    [['a', 'b'], 'a|b'],
    [['a|b'], 'a\\|b'],
    [['a\\', 'b'], 'a\\\\|b'],
    [['a\\|b', 'c'], 'a\\\\\\|b|c'],
  ])('writes %j as %j', (parts, expected) => {
    expect(join(...parts.map((part) => () => part))(record())).toBe(expected);
  });

  it('never gives one id for two lists of parts', () => {
    const part = fc.string({ unit: fc.constantFrom('|', '\\', 'a', 'hex:', 'sha256:'), minLength: 1, maxLength: 4 });
    const list = fc.array(part, { minLength: 1, maxLength: 4 });
    const idOf = (parts: string[]) => join(...parts.map((one) => () => one))(record());
    fc.assert(
      fc.property(list, list, (one, other) => {
        expect(idOf(one) === idOf(other)).toBe(JSON.stringify(one) === JSON.stringify(other));
      }),
      { numRuns: 2000 },
    );
  });

  it('never gives one id for lists of lists that differ in their nesting', () => {
    const text = fc.string({ unit: fc.constantFrom('|', '\\', 'a'), minLength: 1, maxLength: 3 });
    const lists = fc.array(fc.array(text, { minLength: 1, maxLength: 3 }), { minLength: 1, maxLength: 3 });
    const idOf = (parts: string[][]) => join(...parts.map((inner) => join(...inner.map((one) => () => one))))(record());
    fc.assert(
      fc.property(lists, lists, (one, other) => {
        expect(idOf(one) === idOf(other)).toBe(JSON.stringify(one) === JSON.stringify(other));
      }),
      { numRuns: 2000 },
    );
  });

  it('tells a binary key from the text of its own form', () => {
    const id = join(header('a'), recordKey());
    const binary = record({ headers: { a: '1' }, key: Buffer.from('ff', 'hex') });
    const text = record({ headers: { a: '1' }, key: 'hex:ff' });
    expect(id(binary)).not.toBe(id(text));
  });
});

describe.each([
  ['firstOf()', firstOf],
  ['join()', join],
])('%s', (_, compose) => {
  it.each([[[]], [['event-id']], [[header('a'), undefined]]])(
    'refuses %j for its sources where it is written',
    (sources) => {
      expect(thrown(() => compose(...(sources as never[]))).code).toBe('OPTIONS_INVALID');
    },
  );

  it('checks what a function of the user gives', () => {
    expect(thrown(() => compose((() => 5) as never)(record())).message).toContain('is a number');
  });
});
