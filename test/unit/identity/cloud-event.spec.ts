import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { cloudEvent } from '#src/handler/identity/cloud-event.js';
import { record, thrown } from './record.js';

const id = cloudEvent();
const binary = (ce_source: string, ce_id: string) => record({ headers: { ce_source, ce_id } });
const structured = (value: string | Buffer | null, type = 'application/cloudevents+json') =>
  record({ headers: { 'content-type': type }, value });
const event = (attributes: object) => JSON.stringify({ specversion: '1.0', type: 't', ...attributes });

describe('cloudEvent()', () => {
  it('reads source and id from the headers in binary mode', () => {
    expect(id(binary('/shop', '1'))).toBe('/shop|1');
  });

  it.each([
    'application/cloudevents+json',
    'application/cloudevents+json; charset=UTF-8',
    'Application/CloudEvents+JSON;charset=utf-8',
    ' application/cloudevents+json ',
  ])('reads source and id from the value in structured mode: %s', (type) => {
    expect(id(structured(event({ source: '/shop', id: '1' }), type))).toBe('/shop|1');
  });

  it('reads the raw value, whatever the handler decodes it to', () => {
    const headers = { 'content-type': 'application/cloudevents+json' };
    expect(id(record({ headers, value: event({ source: 's', id: '1' }), decoded: { id: 'other' } }))).toBe('s|1');
  });

  it('skips a byte order mark in front of the JSON', () => {
    expect(id(structured(`\uFEFF${event({ source: 's', id: '1' })}`))).toBe('s|1');
  });

  it('follows the content type when a record has both forms', () => {
    const headers = { 'content-type': 'application/cloudevents+json', ce_source: 'x', ce_id: 'x' };
    expect(id(record({ headers, value: event({ source: 's', id: '1' }) }))).toBe('s|1');
  });

  it.each([
    ['no header', record()],
    ['ce_id alone', record({ headers: { ce_id: '1' } })],
    ['ce_source alone', record({ headers: { ce_source: 's' } })],
    ['a structured tombstone', structured(null)],
    ['a structured event without id', structured(event({ source: 's' }))],
    ['a structured event whose id is null', structured(event({ source: 's', id: null }))],
    ['a structured value that is a list', structured('[1]')],
    ['a structured value that is null', structured('null')],
    ['another CloudEvents format', structured(event({ source: 's', id: '1' }), 'application/cloudevents+avro')],
    ['plain JSON with source and id', structured(event({ source: 's', id: '1' }), 'application/json')],
  ])('has nothing for %s', (_, from) => {
    expect(id(from)).toBeUndefined();
  });

  it.each([
    ['an id that comes twice', record({ headers: { ce_source: 's', ce_id: ['1', '2'] } }), 'comes 2 times'],
    ['an empty source', binary('', '1'), 'is empty'],
    ['a number for an id', structured(event({ source: 's', id: 1 })), 'is a JSON number'],
    ['a list for a source', structured(event({ source: ['s'], id: '1' })), 'is a JSON array'],
    ['an empty id', structured(event({ source: 's', id: '' })), 'is empty'],
    ['a lone surrogate', structured('{"source":"s","id":"\\ud800"}'), 'lone surrogate'],
    ['a control character', structured('{"source":"s","id":"a\\u0000"}'), 'control character'],
    ['JSON that is cut', structured('{"source":"secret"'), 'not JSON'],
    ['bytes that are not UTF-8', structured(Buffer.from([0x22, 0xff, 0x22])), 'not UTF-8'],
  ])('refuses %s', (_, from, reason) => {
    const error = thrown(() => id(from));
    expect(error.code).toBe('ID_INVALID');
    expect(error.message).toContain(reason);
    expect(`${error.message} ${String(error.cause)}`).not.toContain('secret');
  });

  it('takes no attribute from a prototype', () => {
    expect(id(structured('{"__proto__":{"source":"s","id":"1"}}'))).toBeUndefined();
  });

  it('gives an event one id in both modes, and two events never the same', () => {
    const part = fc.string({ unit: fc.constantFrom('|', '\\', 'a', 'hex:', 'é'), minLength: 1, maxLength: 5 });
    fc.assert(
      fc.property(part, part, part, part, (source1, id1, source2, id2) => {
        const one = id(binary(source1, id1));
        expect(id(structured(event({ source: source1, id: id1 })))).toBe(one);
        expect(one === id(binary(source2, id2))).toBe(source1 === source2 && id1 === id2);
      }),
    );
  });
});
