import { createHash } from 'node:crypto';
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { firstOf, join } from '#src/handler/identity/compose.js';
import { defaultIdSource, eventIdOf } from '#src/handler/identity/event-id.js';
import { header } from '#src/handler/identity/header.js';
import { payload } from '#src/handler/identity/payload.js';
import { contentHash, recordKey } from '#src/handler/identity/record-parts.js';
import { IdempotencyError } from '#src/shared/errors.js';
import type { IdSource } from '#src/shared/record.js';
import { record, thrown } from './record.js';

const sha256 = (text: string) => `sha256:${createHash('sha256').update(text).digest('hex')}`;
const fromHeader = (text: string) => eventIdOf(header('event-id'), record({ headers: { 'event-id': text } }));
const fromKey = (key: string | Buffer) => eventIdOf(recordKey(), record({ key }));

describe('the default source', () => {
  it('takes the header event-id before the CloudEvent', () => {
    const headers = { 'event-id': 'e', ce_source: 's', ce_id: '1' };
    expect(eventIdOf(defaultIdSource, record({ headers }))).toBe('e');
  });

  it('takes the CloudEvent where there is no header event-id', () => {
    expect(eventIdOf(defaultIdSource, record({ headers: { ce_source: 's', ce_id: '1' } }))).toBe('s|1');
  });

  it('does not pass over a doubled event-id', () => {
    const headers = { 'event-id': ['a', 'b'], ce_source: 's', ce_id: '1' };
    expect(thrown(() => eventIdOf(defaultIdSource, record({ headers }))).code).toBe('ID_INVALID');
  });
});

describe('a record without an id', () => {
  it('is refused, with what was looked for, where, and the remedy', () => {
    const error = thrown(() =>
      eventIdOf(firstOf(defaultIdSource, join(header('source'), payload('meta.id'))), record({ value: '{}' })),
    );
    expect(error.code).toBe('ID_MISSING');
    expect(error.retryable).toBe(false);
    expect(error.facts).toEqual({ topic: 'orders', partition: 3, offset: '42' });
    expect(error.message).toContain('orders[3]@42');
    expect(error.message).toContain("header 'event-id', then a CloudEvent");
    expect(error.message).toContain("all of (header 'source'; payload 'meta.id')");
    expect(error.message).toContain('@Idempotent({ id })');
  });

  it('names the function that found nothing', () => {
    expect(
      thrown(() =>
        eventIdOf(function orderId() {
          return undefined;
        }, record()),
      ).message,
    ).toContain('orderId');
  });
});

describe('an id of any length', () => {
  it('is stored as it is up to 255 bytes', () => {
    expect(fromHeader('x'.repeat(255))).toBe('x'.repeat(255));
  });

  it.each([
    ['256 characters', 'x'.repeat(256)],
    ['128 characters of two bytes', 'é'.repeat(128)],
    ['70000 characters', 'x'.repeat(70_000)],
  ])('is stored as its sha256 from 256 bytes on: %s', (_, text) => {
    expect(fromHeader(text)).toBe(sha256(text));
  });

  it('stays different where only the last of 3000 characters differs', () => {
    expect(fromHeader(`${'x'.repeat(2999)}a`)).not.toBe(fromHeader(`${'x'.repeat(2999)}b`));
  });
});

describe('a form that only this package writes', () => {
  it.each(['hex:ff', 'hex:', 'sha256:abc', sha256('x'.repeat(300))])(
    'is hashed when it comes from outside: %s',
    (text) => {
      const source: IdSource = () => text;
      expect(fromHeader(text)).toBe(sha256(text));
      expect(fromKey(text)).toBe(sha256(text));
      expect(eventIdOf(payload('id'), record({ value: JSON.stringify({ id: text }) }))).toBe(sha256(text));
      expect(eventIdOf(source, record())).toBe(sha256(text));
      expect(eventIdOf(firstOf(header('a'), source), record())).toBe(sha256(text));
    },
  );

  it('is kept when it is ours', () => {
    expect(fromKey(Buffer.from('ff', 'hex'))).toBe('hex:ff');
    const content = record({ value: 'v' });
    expect(eventIdOf(firstOf(header('event-id'), contentHash()), content)).toBe(contentHash()(content));
  });

  it('is told from the same text from outside, also where both are too long', () => {
    const key = Buffer.alloc(200, 0xff);
    const outside = `hex:${key.toString('hex')}`;
    expect(fromKey(key)).toMatch(/^sha256:[0-9a-f]{64}$/);
    expect(
      new Set([fromKey(key), fromKey(outside), fromHeader(fromKey(key)), fromKey(Buffer.alloc(201, 0xff))]).size,
    ).toBe(4);
  });

  it('is never hit by an id from outside, nor by another key', () => {
    const text = fc.string({
      unit: fc.constantFrom('hex:', 'sha256:', 'f', 'é'.repeat(100), 'x'.repeat(255)),
      minLength: 1,
      maxLength: 4,
    });
    const key = fc.oneof(
      text.map((one) => Buffer.from(one)),
      fc.uint8Array({ minLength: 1, maxLength: 300 }).map((one) => Buffer.from(one)),
    );
    fc.assert(
      fc.property(key, key, (one, other) => {
        expect(fromKey(one) === fromKey(other)).toBe(one.equals(other));
        expect(Buffer.byteLength(fromKey(one))).toBeLessThanOrEqual(255);
      }),
      { numRuns: 500 },
    );
  });
});

describe('a function of the user', () => {
  it.each([
    ['a number', 5, 'is a number'],
    ['null', null, 'is null'],
    ['a Buffer', Buffer.from('a'), 'is an object'],
    ['an array', ['a'], 'is an array'],
    ['a Promise', Promise.resolve('a'), 'is a Promise'],
    ['an empty string', '', 'is empty'],
    ['a line break', 'a\nb', 'control character'],
    ['a lone surrogate', '\ud800', 'lone surrogate'],
  ])('may not give %s', (_, result, reason) => {
    const error = thrown(() =>
      eventIdOf(function orderId() {
        return result as string;
      }, record()),
    );
    expect(error.code).toBe('ID_INVALID');
    expect(error.message).toContain('the function orderId');
    expect(error.message).toContain(reason);
  });

  it('that is async and fails does not end the process', async () => {
    const unhandled: unknown[] = [];
    const listener = (reason: unknown) => unhandled.push(reason);
    process.on('unhandledRejection', listener);
    const source = (async () => {
      throw new Error('late');
    }) as unknown as IdSource;
    expect(thrown(() => eventIdOf(source, record())).message).toContain('cannot be async');
    await new Promise((resolve) => setImmediate(() => setImmediate(resolve)));
    process.off('unhandledRejection', listener);
    expect(unhandled).toEqual([]);
  });

  it('that throws makes the id invalid, and its error is the cause', () => {
    const cause = new TypeError('undefined has no id');
    const error = thrown(() =>
      eventIdOf(() => {
        throw cause;
      }, record()),
    );
    expect(error.code).toBe('ID_INVALID');
    expect(error.cause).toBe(cause);
  });

  it('may pass on an error of this package', () => {
    const cause = new IdempotencyError('DECODE_FAILED', 'not JSON');
    expect(
      thrown(() =>
        eventIdOf(() => {
          throw cause;
        }, record()),
      ),
    ).toBe(cause);
  });
});
