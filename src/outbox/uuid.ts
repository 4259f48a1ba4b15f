import { createHash, randomBytes } from 'node:crypto';

/** RFC 9562: 48 bits of milliseconds, then chance. Sorted by time, so that consumers' claims are inserted at one end of their index. */
export function uuidV7(nowMs: number, random: (size: number) => Buffer = randomBytes): string {
  const bytes = random(16);
  bytes.writeUIntBE(nowMs, 0, 6);
  return written(bytes, 7);
}

/** The same for the same text, version 8: its bits are those of SHA-256. */
export function uuidOf(text: string): string {
  return written(createHash('sha256').update(text).digest(), 8);
}

function written(bytes: Buffer, version: number): string {
  bytes[6] = (bytes[6]! & 0x0f) | (version << 4);
  bytes[8] = (bytes[8]! & 0x3f) | 0x80;
  const hex = bytes.toString('hex', 0, 16);
  return [hex.slice(0, 8), hex.slice(8, 12), hex.slice(12, 16), hex.slice(16, 20), hex.slice(20)].join('-');
}
