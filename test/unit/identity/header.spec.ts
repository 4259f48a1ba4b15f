import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { debezium, header } from '#src/handler/identity/header.js';
import { record, thrown } from './record.js';

const id = header('event-id');
const withId = (...values: (string | Buffer)[]) => record({ headers: { 'event-id': values } });

describe('header()', () => {
  it('gives the text of the one value', () => {
    expect(id(withId('ord-1'))).toBe('ord-1');
  });

  it.each([
    ['there is no such header', record()],
    ['the header has no value at all', withId()],
    ['the name differs in case', record({ headers: { 'Event-Id': 'ord-1' } })],
  ])('has nothing when %s', (_, from) => {
    expect(id(from)).toBeUndefined();
  });

  it.each([
    ['comes twice with one value', withId('a', 'a'), 'comes 2 times'],
    ['comes with two values', withId('a', 'b'), 'comes 2 times'],
    ['is empty', withId(''), 'is empty'],
    ['is cut UTF-8', withId(Buffer.from([0x61, 0xe2, 0x82])), 'is not UTF-8'],
    ['is an overlong encoding', withId(Buffer.from([0xc0, 0xaf])), 'is not UTF-8'],
    ['is an encoded surrogate', withId(Buffer.from([0xed, 0xa0, 0x80])), 'is not UTF-8'],
    ['holds NUL', withId('a\0b'), 'control character'],
    ['holds a line feed', withId('a\nb'), 'control character'],
    ['holds DEL', withId('a\x7f'), 'control character'],
    ['holds a C1 control', withId('a\u0085'), 'control character'],
  ])('refuses an id that %s', (_, from, reason) => {
    const error = thrown(() => id(from));
    expect(error.code).toBe('ID_INVALID');
    expect(error.message).toContain("header 'event-id'");
    expect(error.message).toContain(reason);
    expect(error.facts).toEqual({ topic: 'orders', partition: 3, offset: '42' });
    expect(error.retryable).toBe(false);
  });

  it("never repeats the sender's text in its message", () => {
    expect(thrown(() => id(withId('secret\n'))).message).not.toContain('secret');
  });

  it('never gives one id for two byte strings, a byte order mark included', () => {
    expect(id(withId(Buffer.from([0xef, 0xbb, 0xbf, 0x61])))).not.toBe(id(withId('a')));
    fc.assert(
      fc.property(fc.uint8Array({ maxLength: 12 }), (raw) => {
        const bytes = Buffer.from(raw);
        let text: string | undefined;
        try {
          text = id(withId(bytes));
        } catch {
          return; // refused: it collides with nothing
        }
        expect(Buffer.from(text!, 'utf8').equals(bytes)).toBe(true);
      }),
    );
  });

  it('keeps composed and decomposed characters apart', () => {
    expect(id(withId('\u00e9'))).not.toBe(id(withId('e\u0301')));
  });

  it.each([undefined, '', 7, null])('refuses the name %j where it is written', (name) => {
    expect(thrown(() => header(name as string)).code).toBe('OPTIONS_INVALID');
  });

  it.each(['__proto__', 'constructor', 'toString'])('finds no header %s that nobody sent', (name) => {
    expect(header(name)(record())).toBeUndefined();
  });
});

describe('debezium()', () => {
  it('gives the header id, also for a tombstone', () => {
    expect(debezium()(record({ headers: { id: 'a3f1' }, value: null }))).toBe('a3f1');
  });
});
