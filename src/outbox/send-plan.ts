import { inParts } from '../kafka/send-parts.js';
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

/** In order, in parts of at most so many bytes, or of one row. */
export function partsOf(rows: readonly OutboxRow[], bytes: number): OutboxRow[][] {
  return inParts(rows, bytes, bytesOf);
}

function bytesOf({ key, value, headerNames, headerValues }: OutboxRow): number {
  let bytes = (key?.length ?? 0) + (value?.length ?? 0);
  for (let at = 0; at < headerNames.length; at += 1)
    bytes += Buffer.byteLength(headerNames[at]!) + headerValues[at]!.length;
  return bytes;
}
