const HEADER_BYTES = 61;
/** What `batchLength` does not count: the base offset and itself. */
const UNCOUNTED_BYTES = 12;
const MAGIC = 2;

/** What stands in front of the compressed records of a batch (KIP-98, record batch format 2). */
export interface BatchHeader {
  readonly baseOffset: bigint;
  readonly lastOffsetDelta: number;
  readonly records: number;
  /** Where the batch begins and ends in the response it came in. */
  readonly begin: number;
  readonly end: number;
}

/**
 * Reads the header of a batch, of which kafkajs hands a codec the compressed records only: they are a view into the response, with the header in
 * front of them. undefined if it is not there, as for the message sets of Kafka before 0.11.
 */
export function batchHeader(compressed: Buffer): BatchHeader | undefined {
  const begin = compressed.byteOffset - HEADER_BYTES;
  if (begin < 0) return undefined;
  const header = Buffer.from(compressed.buffer, begin, HEADER_BYTES);
  const isHeader =
    header.readInt8(16) === MAGIC && header.readInt32BE(8) === HEADER_BYTES - UNCOUNTED_BYTES + compressed.length;
  if (!isHeader) return undefined;
  return {
    baseOffset: header.readBigInt64BE(0),
    lastOffsetDelta: header.readInt32BE(23),
    records: header.readInt32BE(57),
    begin,
    end: begin + HEADER_BYTES + compressed.length,
  };
}
