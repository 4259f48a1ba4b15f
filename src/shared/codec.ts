/** Codecs that kafkajs does not bring itself. */
export type CodecName = 'snappy' | 'lz4' | 'zstd';

/** A compression codec as the kafkajs codec packages export it. What it throws, and what it gives beyond `limits.batchBytes`, stops the partition. */
export interface Codec {
  decompress(compressed: Buffer): Promise<Buffer> | Buffer;
}
