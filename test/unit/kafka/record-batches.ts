import { createRequire } from 'node:module';
import { gzipSync } from 'node:zlib';
import type { KafkaMessage } from 'kafkajs';

const require = createRequire(import.meta.url);
// kafkajs's own reader of fetched bytes: what is put in a codec's place has to get through it.
const Decoder = require('kafkajs/src/protocol/decoder') as new (bytes: Buffer) => object;
const decodeMessages = require('kafkajs/src/protocol/requests/fetch/v4/decodeMessages') as (
  decoder: object,
) => Promise<KafkaMessage[]>;
const FetchedBatch = require('kafkajs/src/consumer/batch') as new (
  topic: string,
  fetchedOffset: string,
  data: object,
) => { messages: KafkaMessage[]; firstOffset(): string | null; lastOffset(): string };

export const CODEC_BITS = { none: 0, gzip: 1, snappy: 2, lz4: 3, zstd: 4 } as const;

interface BatchOptions {
  readonly at: number;
  readonly values: readonly (string | Buffer)[];
  readonly codec?: keyof typeof CODEC_BITS;
  /** Of a transaction of this producer. */
  readonly producerId?: number;
}

/** A record batch as a broker stores it, less its checksum, which kafkajs does not look at. Without a codec of its own the records are gzipped all the same. */
export function recordBatch({ at, values, codec = 'none', producerId }: BatchOptions): Buffer {
  const records = Buffer.concat(values.map((value, delta) => record(delta, Buffer.from(value))));
  const body = codec === 'none' ? records : gzipSync(records);
  const header = Buffer.alloc(61);
  header.writeBigInt64BE(BigInt(at), 0);
  header.writeInt32BE(49 + body.length, 8);
  header.writeInt8(2, 16);
  header.writeInt16BE(CODEC_BITS[codec] | (producerId === undefined ? 0 : 16), 21);
  header.writeInt32BE(values.length - 1, 23);
  header.writeBigInt64BE(BigInt(producerId ?? -1), 43);
  header.writeInt32BE(values.length, 57);
  return Buffer.concat([header, body]);
}

/** What kafkajs makes of one partition's part of a fetch response. */
export async function fetched(batches: readonly Buffer[], from = 0, abortedTransactions: object[] = []) {
  const size = Buffer.alloc(4);
  size.writeInt32BE(batches.reduce((sum, { length }) => sum + length, 0));
  const messages = await decodeMessages(new Decoder(Buffer.concat([size, ...batches])));
  return new FetchedBatch('t', String(from), { partition: 0, highWatermark: '1000000', messages, abortedTransactions });
}

export const valuesOf = (messages: readonly KafkaMessage[]): string[] => messages.map(({ value }) => String(value));

function record(delta: number, value: Buffer): Buffer {
  const body = Buffer.concat([Buffer.alloc(2), varint(delta), varint(-1), varint(value.length), value, varint(0)]);
  return Buffer.concat([varint(body.length), body]);
}

function varint(value: number): Buffer {
  const bytes: number[] = [];
  let rest = ((value << 1) ^ (value >> 31)) >>> 0;
  for (; rest > 127; rest >>>= 7) bytes.push((rest & 127) | 128);
  return Buffer.from([...bytes, rest]);
}
