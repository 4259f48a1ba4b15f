import { createHash } from 'node:crypto';
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { fingerprint } from '#src/handler/identity/fingerprint.js';

describe('fingerprint()', () => {
  it('is 0 for a tombstone, and not for an empty value', () => {
    expect(fingerprint(null)).toBe('0');
    expect(fingerprint(Buffer.alloc(0))).toBe('-2039914840885289964');
  });

  it('is the first 8 bytes of the sha256 as a signed bigint', () => {
    fc.assert(
      fc.property(fc.uint8Array(), (bytes) => {
        const hex = createHash('sha256').update(bytes).digest('hex').slice(0, 16);
        expect(fingerprint(Buffer.from(bytes))).toBe(BigInt.asIntN(64, BigInt(`0x${hex}`)).toString());
      }),
    );
  });
});
