import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { contentHash, position, recordKey } from '#src/handler/identity/record-parts.js';
import { record, thrown } from './record.js';

describe('recordKey()', () => {
  const id = recordKey();

  it.each([
    ['a text key as it is', 'order-1', 'order-1'],
    ['a key that is not UTF-8 as its bytes', Buffer.from('fffe01', 'hex'), 'hex:fffe01'],
    ['its neighbour as other bytes', Buffer.from('fffd01', 'hex'), 'hex:fffd01'],
    ['a binary number as its bytes', Buffer.from('0000002a', 'hex'), 'hex:0000002a'],
  ])('gives %s', (_, key, expected) => {
    expect(id(record({ key }))).toBe(expected);
  });

  it('has nothing when there is no key', () => {
    expect(id(record({ key: null }))).toBeUndefined();
  });

  it('refuses a key of zero bytes', () => {
    expect(thrown(() => id(record({ key: '' }))).code).toBe('ID_INVALID');
  });

  it('never gives one id for two keys, whatever their bytes', () => {
    const text = fc.string({ unit: fc.constantFrom('hex:', 'sha256:', 'f', '0', 'é'), minLength: 1, maxLength: 6 });
    const key = fc.oneof(
      fc.uint8Array({ minLength: 1, maxLength: 6 }).map((bytes) => Buffer.from(bytes)),
      text.map((one) => Buffer.from(one)),
    );
    fc.assert(
      fc.property(key, key, (one, other) => {
        expect(id(record({ key: one })) === id(record({ key: other }))).toBe(one.equals(other));
        // The text of a binary key's own form is another key.
        expect(id(record({ key: id(record({ key: one }))! })) === id(record({ key: one }))).toBe(
          one.toString() === id(record({ key: one })),
        );
      }),
    );
  });
});

describe('position()', () => {
  it('gives topic, partition, offset and timestamp', () => {
    expect(position()(record())).toBe('orders|3|42|1700000000000');
  });

  it.each([
    ['topic', { topic: 'orders2' }],
    ['partition', { partition: 4 }],
    ['offset', { offset: '43' }],
    ['timestamp: a topic made anew', { timestamp: new Date(1_700_000_000_001) }],
  ])('differs with the %s', (_, change) => {
    expect(position()(record(change))).not.toBe(position()(record()));
  });
});

describe('contentHash()', () => {
  const id = contentHash();

  it('gives one id to the same key and value, wherever they stand', () => {
    const one = id(record({ key: 'k', value: 'v' }));
    expect(one).toMatch(/^sha256:[0-9a-f]{64}$/);
    expect(id(record({ key: 'k', value: 'v', offset: '43', partition: 5 }))).toBe(one);
  });

  it.each([
    ['another value', { key: 'k', value: 'w' }],
    ['another key: the same words about another order', { key: 'l', value: 'v' }],
    ['no key', { key: null, value: 'v' }],
    ['bytes that moved from value to key', { key: 'kv', value: '' }],
  ])('gives another id to %s', (_, parts) => {
    expect(id(record(parts))).not.toBe(id(record({ key: 'k', value: 'v' })));
  });

  it('tells no key from an empty key', () => {
    expect(id(record({ key: null, value: 'v' }))).not.toBe(id(record({ key: '', value: 'v' })));
  });

  it('has nothing for a tombstone: the second delete of a key is another event', () => {
    expect(id(record({ key: 'k', value: null }))).toBeUndefined();
  });
});
