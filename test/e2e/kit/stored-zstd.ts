import { CompressionCodecs, CompressionTypes, type Message } from 'kafkajs';
import type { World } from './world.js';

const MAGIC = Buffer.from([0x28, 0xb5, 0x2f, 0xfd]);
/** One segment, its size in four bytes, no checksum. */
const DESCRIPTOR = Buffer.from([0xa0]);
const BLOCK_BYTES = 100_000;

/** zstd without its compression: frames of raw blocks (RFC 8878), which every reader of zstd takes, the broker included. Node 20 has none. */
export const storedZstd = () => ({
  async compress({ buffer }: { buffer: Buffer }): Promise<Buffer> {
    const size = Buffer.alloc(4);
    size.writeUInt32LE(buffer.length);
    const blocks = Array.from({ length: Math.ceil(buffer.length / BLOCK_BYTES) }, (_, index) => {
      const block = buffer.subarray(index * BLOCK_BYTES, (index + 1) * BLOCK_BYTES);
      const isLast = (index + 1) * BLOCK_BYTES >= buffer.length;
      const header = Buffer.alloc(3);
      header.writeUIntLE(block.length * 8 + (isLast ? 1 : 0), 0, 3);
      return Buffer.concat([header, block]);
    });
    return Buffer.concat([MAGIC, DESCRIPTOR, size, ...blocks]);
  },
  decompress(frame: Buffer): Buffer {
    const blocks: Buffer[] = [];
    for (let at = 9, isLast = false; !isLast;) {
      const header = frame.readUIntLE(at, 3);
      isLast = (header & 1) === 1;
      blocks.push(frame.subarray(at + 3, at + 3 + (header >> 3)));
      at += 3 + (header >> 3);
    }
    return Buffer.concat(blocks);
  },
});

/** Sends one batch compressed with zstd, as another producer might. Afterwards kafkajs knows zstd no more than before. */
export async function sendZstd(world: World, topic: string, messages: Message[]): Promise<void> {
  const before = CompressionCodecs[CompressionTypes.ZSTD];
  CompressionCodecs[CompressionTypes.ZSTD] = storedZstd;
  try {
    await world.producer.send({ topic, acks: -1, compression: CompressionTypes.ZSTD, messages });
  } finally {
    CompressionCodecs[CompressionTypes.ZSTD] = before;
  }
}
