import { randomBytes } from 'node:crypto';
import type { KafkaMessage } from 'kafkajs';
import type { BatchHeader } from './batch-header.js';

/** Why a batch could not be read, and which one. */
export interface Undecodable {
  readonly code: 'CODEC_MISSING' | 'BATCH_TOO_LARGE';
  readonly firstOffset: bigint;
  /** A sentence without the place, remedy included. */
  readonly detail: string;
}

/** Known to this process alone, so that no record of a topic can pass for a marker. */
const SECRET = randomBytes(16);
const EMPTY = Buffer.alloc(0);

/**
 * Stands in for the decompressed records of a batch that cannot be read: as many records as its header says, for kafkajs reads that many, the first of
 * which tells what is wrong. All have the batch's last offset, so that none is dropped as one from before the position, and a batch of an aborted
 * transaction is skipped as far as it goes.
 */
export function markerRecords(header: BatchHeader, { code, detail }: Omit<Undecodable, 'firstOffset'>): Buffer {
  const told = Buffer.from(JSON.stringify({ code, detail, firstOffset: header.baseOffset.toString() }));
  const first = record(header.lastOffsetDelta, SECRET, told);
  const filler = record(header.lastOffsetDelta, EMPTY, EMPTY);
  return Buffer.concat([first, Buffer.alloc(filler.length * (header.records - 1), filler)]);
}

export function isMarker({ key }: KafkaMessage): boolean {
  return key !== null && key.length === SECRET.length && key.equals(SECRET);
}

export function undecodableOf({ value }: KafkaMessage): Undecodable {
  const { firstOffset, ...told } = JSON.parse(String(value)) as Undecodable & { firstOffset: string };
  return { ...told, firstOffset: BigInt(firstOffset) };
}

/** Length, attributes, timestamp delta, offset delta, key, value, number of headers. */
function record(offsetDelta: number, key: Buffer, value: Buffer): Buffer {
  const noHeaders = varint(0);
  const fields = [
    EMPTY_BYTE,
    varint(0),
    varint(offsetDelta),
    varint(key.length),
    key,
    varint(value.length),
    value,
    noHeaders,
  ];
  const body = Buffer.concat(fields);
  return Buffer.concat([varint(body.length), body]);
}

const EMPTY_BYTE = Buffer.alloc(1);

/** Zigzag, 7 bits a byte, lowest first; for numbers from 0. */
function varint(value: number): Buffer {
  const bytes: number[] = [];
  let rest = value * 2;
  for (; rest > 127; rest = Math.floor(rest / 128)) bytes.push((rest % 128) + 128);
  return Buffer.from([...bytes, rest]);
}
