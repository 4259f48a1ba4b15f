import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import {
  correlationIdOf,
  isReadableCommit,
  KafkaFramer,
  refusedCommit,
  requestHeader,
  withCommitError,
} from '#src/testing/kafka-wire.js';

describe('KafkaFramer', () => {
  test('messages come out whole and in order however the chunks fall', () => {
    const sent = [framed(Buffer.alloc(10, 1)), framed(Buffer.alloc(0)), framed(Buffer.alloc(70_000, 2)), commit(5)];
    const stream = Buffer.concat(sent);
    fc.assert(
      fc.property(fc.array(fc.integer({ min: 0, max: stream.length })), (cuts) => {
        const framer = new KafkaFramer();
        const edges = [0, ...cuts.toSorted((a, b) => a - b), stream.length];
        const chunks = edges.slice(1).map((edge, index) => stream.subarray(edges[index], edge));
        const received = chunks.flatMap((chunk) => framer.push(chunk));
        expect(received.length).toBe(sent.length);
        received.forEach((message, index) => expect(message.equals(sent[index]!)).toBe(true));
      }),
    );
  });

  test('what is not the protocol is refused', () => {
    expect(() => new KafkaFramer().push(Buffer.from('ffffffff', 'hex'))).toThrow("Not Kafka's protocol");
  });
});

test('a request tells its kind, version and correlation id', () => {
  expect(requestHeader(commit(5))).toEqual({ apiKey: 8, apiVersion: 5, correlationId: 77 });
});

test.each([0, 8, 9])('a commit in version %i is none that can be changed', (version) => {
  expect(isReadableCommit(requestHeader(commit(version)))).toBe(false);
});

test('a refused commit differs in its generation alone, whatever the names before it', () => {
  for (const clientId of ['billing', null, '']) {
    const given = commit(5, clientId);
    const refused = refusedCommit(given);
    expect(refused).toEqual(commit(5, clientId, 0x7fff_ffff));
    expect(given).toEqual(commit(5, clientId));
  }
});

test.each([1, 2, 3, 5, 7])(
  'a commit response of version %i gets the error for each partition, and nothing else',
  (version) => {
    const changed = withCommitError(response(version, 0), version, 22);
    expect(changed).toEqual(response(version, 22));
    expect(correlationIdOf(changed)).toBe(77);
  },
);

function commit(version: number, clientId: string | null = 'billing', generation = 3): Buffer {
  return framed(int16(8), int16(version), int32(77), text(clientId), text('group'), int32(generation), text('member'));
}

function response(version: number, errorCode: number): Buffer {
  const partition = (number: number) => Buffer.concat([int32(number), int16(errorCode)]);
  return framed(
    int32(77),
    version >= 3 ? int32(0) : Buffer.alloc(0),
    int32(2),
    text('orders'),
    int32(2),
    partition(0),
    partition(5),
    text('none'),
    int32(0),
  );
}

function framed(...parts: Buffer[]): Buffer {
  const body = Buffer.concat(parts);
  return Buffer.concat([int32(body.length), body]);
}

function text(value: string | null): Buffer {
  return value === null ? int16(-1) : Buffer.concat([int16(Buffer.byteLength(value)), Buffer.from(value)]);
}

function int16(value: number): Buffer {
  const bytes = Buffer.alloc(2);
  bytes.writeInt16BE(value);
  return bytes;
}

function int32(value: number): Buffer {
  const bytes = Buffer.alloc(4);
  bytes.writeInt32BE(value);
  return bytes;
}
