import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import {
  MessageFramer,
  bind,
  boundPortal,
  errorCode,
  errorResponse,
  execute,
  executedPortal,
  parse,
  parsedStatement,
  query,
  queryText,
} from '#src/testing/postgres-wire.js';
import { opening, startup } from './postgres-messages.js';

const CANCEL = 80_877_102;
const SSL = 80_877_103;

describe('MessageFramer', () => {
  test('messages come out whole and in order however the chunks fall', () => {
    const sent = [
      startup(),
      query('SELECT 1'),
      parse('INSERT INTO t VALUES ($1)'),
      bind(),
      execute(),
      query('é'.repeat(300)),
    ];
    const stream = Buffer.concat(sent);
    fc.assert(
      fc.property(fc.array(fc.integer({ min: 0, max: stream.length })), (cuts) => {
        const framer = new MessageFramer('client');
        const received = chunks(stream, cuts).flatMap((chunk) => framer.push(chunk));
        expect(received.map(({ bytes }) => bytes)).toEqual(sent);
        expect(received.map(({ type }) => type)).toEqual(['startup', 'Q', 'P', 'B', 'E', 'Q']);
      }),
    );
  });

  test('a client that asks for TLS first opens a second time', () => {
    const framer = new MessageFramer('client');
    const received = framer.push(Buffer.concat([opening(SSL), startup(), query('SELECT 1')]));
    expect(received.map(({ type }) => type)).toEqual(['ssl', 'startup', 'Q']);
  });

  test('a cancel request is told from a start', () => {
    const [message] = new MessageFramer('client').push(opening(CANCEL, Buffer.alloc(8)));
    expect(message?.type).toBe('cancel');
  });

  test('what is not the protocol is refused', () => {
    const framer = new MessageFramer('server');
    expect(() => framer.push(Buffer.from('R\0\0\0\x01'))).toThrow("Not PostgreSQL's protocol");
  });
});

test('written messages are read back', () => {
  const [, q, p, b, e] = new MessageFramer('client').push(
    Buffer.concat([startup(), query('COMMIT'), parse('COMMIT'), bind(), execute()]),
  );
  expect(q && queryText(q)).toBe('COMMIT');
  expect(p && parsedStatement(p)).toEqual({ name: '', text: 'COMMIT' });
  expect(b && boundPortal(b)).toEqual({ portal: '', statement: '' });
  expect(e && executedPortal(e)).toBe('');
});

test('the SQLSTATE of an error is found behind fields of any length', () => {
  const [error] = new MessageFramer('server').push(errorResponse({ code: '53100', message: 'disk full é' }));
  expect(error && errorCode(error)).toBe('53100');
});

function chunks(stream: Buffer, cuts: number[]): Buffer[] {
  const edges = [0, ...cuts.toSorted((a, b) => a - b), stream.length];
  return edges.slice(1).map((edge, index) => stream.subarray(edges[index], edge));
}
