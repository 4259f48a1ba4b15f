import { expect, test } from 'vitest';
import { decodeValue, textOrBytes } from '#src/consumer/decode.js';
import { ConsumedRecord } from '#src/consumer/consumed-record.js';
import { decodeJson } from 'nestjs-kafka-idempotency';

const json = (text: string) => decodeValue(Buffer.from(text), 'json', 100);

test.each([
  ['{"a":1}', { a: 1 }],
  ['123', 123],
  ['"x"', 'x'],
  ['true', true],
  ['null', null],
  ['\uFEFF{}', {}],
  ['', ''],
])('B43 the JSON text %j has its documented type', (text, expected) => {
  expect(json(text)).toEqual(expected);
});

test.each(['{"a":1', '[1', '\uFEFF', 'x'])('B43 %j is a failure, never a string', (text) => {
  expect(() => json(text)).toThrow(expect.objectContaining({ code: 'DECODE_FAILED' }));
});

test('B08 a tombstone is null', () => {
  expect(decodeValue(null, 'json', 100)).toBeNull();
});

test('B14 a value that is framed by a schema registry stays bytes, and each reader gets its own', () => {
  const value = Buffer.from([0, 0, 0, 0, 7, 0x80, 0xff]);
  const decoded = decodeValue(value, 'json', 100) as Buffer;
  decoded[1] = 9;
  expect(value[1]).toBe(0);
});

test('B14 a value that is not UTF-8 fails as JSON and as text', () => {
  const value = Buffer.from([0xff, 0xfe]);
  expect(() => decodeValue(value, 'json', 100)).toThrow(expect.objectContaining({ code: 'DECODE_FAILED' }));
  expect(() => decodeValue(value, 'text', 100)).toThrow(expect.objectContaining({ code: 'DECODE_FAILED' }));
  expect(decodeValue(value, 'bytes', 100)).toEqual(value);
});

test('the error of a value that does not parse quotes nothing of it', () => {
  expect(() => json('{"password":"hunter2')).toThrow(
    expect.objectContaining({ message: expect.not.stringContaining('hunter2') as string }),
  );
});

test('JSON nested deeper than the limit fails; brackets in strings do not count', () => {
  expect(() => decodeValue(Buffer.from('['.repeat(101) + ']'.repeat(101)), 'json', 100)).toThrow('limits.jsonDepth');
  expect(json('['.repeat(100) + ']'.repeat(100))).toBeDefined();
  expect(json(JSON.stringify({ text: '[\\"{'.repeat(200) }))).toBeDefined();
});

test('keys and headers are text if they are UTF-8, else bytes, and are never parsed', () => {
  expect(textOrBytes(Buffer.from('{"a":1}'))).toBe('{"a":1}');
  expect(textOrBytes(Buffer.from([0xff, 0xfe, 1]))).toEqual(Buffer.from([0xff, 0xfe, 1]));
});

test('B71 decodeJson with unwrap parses a JSON string once more', () => {
  const record = recordOf({ value: Buffer.from('"{\\"a\\":1}"') }).view('json', 100);
  expect(decodeJson({ unwrap: true })(record)).toEqual({ a: 1 });
  expect(decodeJson()(record)).toBe('{"a":1}');
});

test('B08 a record without headers has an empty map of them', () => {
  const { headers, key, value } = recordOf({}).view('json', 100);
  expect([headers.size, key, value]).toEqual([0, null, null]);
});

test('B08 a header without a value is left out', () => {
  const { headers } = recordOf({ headers: { empty: null, foo: Buffer.from('bar') } }).view('json', 100);
  expect([...headers.keys()]).toEqual(['foo']);
});

test('B13 what one view hands out does not reach the next', () => {
  const record = recordOf({ value: Buffer.from('{"a":1}'), headers: { foo: Buffer.from('bar') } });
  const first = record.view('json', 100);
  (first.decoded() as { a: number }).a = 2;
  first.value!.fill(0);
  first.headers.get('foo')![0]!.fill(0);
  const second = record.view('json', 100);
  expect(second.decoded()).toEqual({ a: 1 });
  expect(second.headers.get('foo')).toEqual([Buffer.from('bar')]);
});

function recordOf(message: object): ConsumedRecord {
  return new ConsumedRecord('t', 0, {
    key: null,
    value: null,
    timestamp: '0',
    attributes: 0,
    offset: '41',
    ...message,
  } as never);
}
