import { oneLine } from '../shared/one-line.js';
import type { FailedAttempt, ParkReason, StoredRecord } from '../shared/parking.js';
import { storedTime } from './stored-record.js';

const PREFIX = 'dead-letter-';
const VERSION = '1';
const NAME_BYTES = 255;
const MESSAGE_BYTES = 1024;
const STACK_BYTES = 4096;

/** What the headers of a dead letter tell. */
export interface DeadLetterFacts {
  readonly consumer: string;
  readonly groupId: string;
  readonly eventId: string | undefined;
  readonly reason: ParkReason;
  readonly error: Pick<FailedAttempt, 'code' | 'name' | 'message'> | undefined;
  readonly stack: string | undefined;
  readonly attempts: number;
  readonly rounds: number;
  readonly replays: number;
  readonly firstFailedAt: Date | null;
  readonly lastFailedAt: Date | null;
}

/**
 * The headers of a dead letter: the record's own, byte for byte and in their order, then ours, each once. Ours of an earlier round are replaced, so that
 * their number and size stay the same however often the event comes back. `brief`: without message and stack, for a record that is too large with them.
 */
export function deadLetterHeaders(
  record: StoredRecord,
  facts: DeadLetterFacts,
  { brief }: { brief: boolean },
): [name: string, value: Buffer | null][] {
  const own: [string, Buffer | null][] = record.headers
    .filter(([name]) => !name.startsWith(PREFIX))
    .map(([name, value]) => [name, value]);
  for (const [name, text, maxBytes] of ours(record, facts, brief)) {
    if (text !== undefined) own.push([`${PREFIX}${name}`, Buffer.from(oneLine(text, maxBytes ?? NAME_BYTES))]);
  }
  return own;
}

type Header = readonly [name: string, text: string | undefined, maxBytes?: number];

function ours(record: StoredRecord, facts: DeadLetterFacts, brief: boolean): Header[] {
  return [
    ['version', VERSION],
    ['consumer', facts.consumer],
    ['group', facts.groupId],
    ['topic', record.topic],
    ['partition', String(record.partition)],
    ['offset', record.offset.toString()],
    ['timestamp', storedTime(record.timestamp).toISOString()],
    ['event-id', facts.eventId],
    ['reason', facts.reason],
    ['error-code', facts.error?.code],
    ['error-name', facts.error?.name],
    ['error-message', brief ? undefined : facts.error?.message, MESSAGE_BYTES],
    ['error-stack', brief ? undefined : facts.stack, STACK_BYTES],
    ['attempts', String(facts.attempts)],
    ['rounds', String(facts.rounds)],
    ['replays', String(facts.replays)],
    ['first-failed-at', facts.firstFailedAt?.toISOString()],
    ['last-failed-at', facts.lastFailedAt?.toISOString()],
  ];
}
