import type { KafkaMessage } from 'kafkajs';
import { describe, expect, test } from 'vitest';
import { ConsumedRecord } from '#src/consumer/consumed-record.js';
import { requestOf } from '#src/consumer/replies.js';

const RECORD = { key: null, value: null, offset: '5', timestamp: '1764288000000', attributes: 0 };

/** What kafkajs makes of headers: null where there is no value; for a name that every object inherits, the inherited member first. */
function recordWith(headers: Record<string, unknown>): ConsumedRecord {
  return new ConsumedRecord('orders', 0, { ...RECORD, headers } as unknown as KafkaMessage);
}

const text = Buffer.from('x');

describe('headers that kafkajs reads oddly do not make a record undeliverable', () => {
  test.each([
    ['without a value', { h: null }, [['h', null]], []],
    [
      'repeated, once without a value',
      { h: [text, null] },
      [
        ['h', text],
        ['h', null],
      ],
      [['h', [text]]],
    ],
    ['called constructor', { constructor: [Object, text] }, [['constructor', text]], [['constructor', [text]]]],
  ])('%s', (_what, headers, stored, viewed) => {
    const record = recordWith(headers);
    expect(record.stored.headers).toEqual(stored);
    expect([...record.view('bytes', 10).headers]).toEqual(viewed);
  });
});

test.each([
  ['kafka_correlationId', { kafka_correlationId: null, kafka_replyTopic: text }],
  ['kafka_replyTopic', { kafka_correlationId: text, kafka_replyTopic: null }],
])('an empty %s makes no request of a record', (_name, headers) => {
  expect(requestOf(recordWith(headers).message)).toBeUndefined();
});

test('an empty kafka_replyPartition is none', () => {
  const headers = { kafka_correlationId: text, kafka_replyTopic: text, kafka_replyPartition: null };
  expect(requestOf(recordWith(headers).message)).toMatchObject({ replyTopic: 'x', replyPartition: undefined });
});

test('a record that was stored is delivered with the bytes and headers it had', () => {
  const stored = recordWith({ a: [text, Buffer.from('y')], b: null }).stored;
  expect(ConsumedRecord.from(stored).stored).toEqual(stored);
});
