import type { OutgoingMessage } from './checked-producer.js';

/** Where a topic's limit is Kafka's default of 1048588 bytes, a part of so many fits as a whole. */
export const SEND_BYTES = 900_000;
/** For a message's own lengths and those of its headers. */
const OVERHEAD = 100;

/**
 * In order, in parts of at most so many bytes, or of one item: kafkajs makes one batch of what goes to a partition, and a topic takes no larger one than its max.message.bytes.
 * `bytesOf`: of key, value and headers.
 */
export function inParts<T>(items: readonly T[], most: number, bytesOf: (item: T) => number): T[][] {
  const parts: T[][] = [];
  let left = 0;
  for (const item of items) {
    const bytes = OVERHEAD + bytesOf(item);
    if (parts.length === 0 || bytes > left) {
      parts.push([]);
      left = most;
    }
    parts.at(-1)!.push(item);
    left -= bytes;
  }
  return parts;
}

/** Of key, value and headers. */
export function bytesOfMessage({ key, value, headers = {} }: OutgoingMessage): number {
  let bytes = (key?.length ?? 0) + (value?.length ?? 0);
  for (const name in headers) bytes += Buffer.byteLength(name) + Buffer.byteLength(headers[name] as Buffer);
  return bytes;
}
