import { lineOf, type OutboxRow } from './outbox-row.js';

export interface SendPlan {
  readonly send: readonly OutboxRow[];
  /** The first of their keys, not due yet: what stands behind them waits too. */
  readonly waiting: readonly OutboxRow[];
}

/** Of rows in the order of their ids, those that may be sent: of each key, those in front of the first that must wait. */
export function planOf(rows: readonly OutboxRow[], isBlocked: (row: OutboxRow) => boolean): SendPlan {
  const send: OutboxRow[] = [];
  const waiting: OutboxRow[] = [];
  const stopped = new Set<string>();
  for (const row of rows) {
    if (stopped.size > 0 && stopped.has(lineOf(row))) continue;
    const blocked = isBlocked(row);
    if (!blocked && row.waitMs <= 0) {
      send.push(row);
      continue;
    }
    stopped.add(lineOf(row));
    if (!blocked) waiting.push(row);
  }
  return { send, waiting };
}

/** For a message's own lengths and those of its headers. */
const OVERHEAD = 100;

/** In order, in parts of at most so many bytes, or of one row: kafkajs makes one batch of what goes to a partition, and a topic takes no larger one than its max.message.bytes. */
export function partsOf(rows: readonly OutboxRow[], bytes: number): OutboxRow[][] {
  const parts: OutboxRow[][] = [];
  let left = 0;
  for (const row of rows) {
    const size = bytesOf(row);
    if (parts.length === 0 || size > left) {
      parts.push([]);
      left = bytes;
    }
    parts.at(-1)!.push(row);
    left -= size;
  }
  return parts;
}

function bytesOf({ key, value, headerNames, headerValues }: OutboxRow): number {
  let bytes = OVERHEAD + (key?.length ?? 0) + (value?.length ?? 0);
  for (let at = 0; at < headerNames.length; at += 1)
    bytes += Buffer.byteLength(headerNames[at]!) + headerValues[at]!.length;
  return bytes;
}
