import fc from 'fast-check';
import { expect, it } from 'vitest';
import { encodeMessage, sizeOf } from '#src/outbox/encoded-message.js';
import { uuidOf, uuidV7 } from '#src/outbox/uuid.js';
import { keyShard } from '#src/kafka/key-shard.js';

const LIMIT = { maxBytes: 100, now: () => 0 };

it('a string, a Buffer and a typed array are the bytes they are; what has a JSON is its JSON', () => {
  fc.assert(
    fc.property(fc.string({ unit: 'binary', maxLength: 20 }), fc.uint8Array({ maxLength: 90 }), (text, bytes) => {
      expect(encodeMessage('t', text, { id: 'e' }, LIMIT).value).toEqual(Buffer.from(text));
      expect(encodeMessage('t', bytes, { id: 'e' }, LIMIT).value).toEqual(Buffer.from(bytes));
    }),
  );
  fc.assert(
    fc.property(fc.jsonValue(), (value) => {
      fc.pre(typeof value !== 'string' && value !== null);
      const message = encodeMessage('t', value, { id: 'e' }, { maxBytes: 1e6 });
      expect(message.value!.toString()).toBe(JSON.stringify(value));
      expect(message.headers).toContainEqual(['content-type', Buffer.from('application/json')]);
    }),
  );
});

it('the limit is met by key, value and headers together', () => {
  const message = encodeMessage('t', 'x'.repeat(80), { id: 'e', key: 'k' }, LIMIT);
  expect(sizeOf(message)).toBe(80 + 1 + 'event-id'.length + 1);
  expect(() => encodeMessage('t', 'x'.repeat(90), { id: 'e', key: 'kk' }, LIMIT)).toThrow(
    /101 bytes.*MESSAGE_TOO_LARGE/s,
  );
});

it('a long dedupeKey is kept as its hash', () => {
  const keyOf = (dedupeKey: string) => encodeMessage('t', 'x', { dedupeKey }, LIMIT).dedupeKey;
  expect(keyOf('k'.repeat(255))).toBe('k'.repeat(255));
  expect(keyOf('k'.repeat(256))).toMatch(/^sha256:[\da-f]{64}$/);
});

it('ids of a later millisecond are greater', () => {
  fc.assert(
    fc.property(fc.integer({ min: 0, max: 2 ** 47 }), fc.integer({ min: 1, max: 1000 }), (ms, later) => {
      expect(uuidV7(ms) < uuidV7(ms + later)).toBe(true);
    }),
  );
  expect(uuidV7(0x0123456789ab, () => Buffer.alloc(16, 0xff))).toBe('01234567-89ab-7fff-bfff-ffffffffffff');
});

it('B67: the shard of a key is murmur2 as Java has it, low bits', () => {
  // org.apache.kafka.common.utils.UtilsTest.testMurmur2
  const hashes = { '21': -973932308, foobar: -790332482, 'a-little-bit-long-string': -985981536, abc: 479470107 };
  for (const [key, hash] of Object.entries(hashes)) expect(keyShard(Buffer.from(key))).toBe(hash & 15);
});

it('a UUID that is the same for the same text', () => {
  expect(uuidOf('orders[3]@7')).toBe(uuidOf('orders[3]@7'));
  expect(uuidOf('orders[3]@7')).not.toBe(uuidOf('orders[3]@8'));
  expect(uuidOf('orders[3]@7')).toMatch(/^[0-9a-f]{8}-[0-9a-f]{4}-8[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$/);
});
