import { createHash } from 'node:crypto';
import { isUtf8 } from 'node:buffer';
import { IdempotencyError } from '../../shared/errors.js';
import type { RecordView } from '../../shared/record.js';

/** Forms that only this package writes, so that no id from outside can equal one of them. */
const RESERVED = /^(?:hex|sha256):/;
/** NUL cannot be stored by PostgreSQL, CR and LF forge log lines, and none of the others belongs in an id. */
const CONTROL = /\p{Cc}/u;
/** Every lone surrogate becomes U+FFFD in UTF-8, so two ids would be stored as one. */
const LONE_SURROGATE = /\p{Surrogate}/u;

/**
 * Text from outside (a header, a key, the payload, a user's function) as an id or a part of one. Throws ID_INVALID for text that must not be used.
 * Text that starts like a form of ours is replaced by its hash: a header `hex:ff` is not the binary key `ff`.
 */
export function admittedText(text: string, from: string, record: RecordView): string {
  const fault = faultOf(text);
  if (fault !== undefined) throw invalidId(record, from, fault);
  return isReserved(text) ? sha256(text) : text;
}

export function isReserved(text: string): boolean {
  return RESERVED.test(text);
}

/** Whether the bytes can be an id as they are read: UTF-8, not empty, no control character. */
export function isPlainText(bytes: Buffer): boolean {
  const text = textOf(bytes);
  return text !== undefined && faultOf(text) === undefined;
}

/** The text of UTF-8 bytes, or undefined if they are not. Lossless: a byte order mark stays, so no two byte strings give one text. */
export function textOf(bytes: Buffer): string | undefined {
  return isUtf8(bytes) ? bytes.toString('utf8') : undefined;
}

export function sha256(...parts: readonly (string | Buffer)[]): string {
  const hash = createHash('sha256');
  for (const part of parts) hash.update(part);
  return `sha256:${hash.digest('hex')}`;
}

/** `fault` completes "The event id from X …". Neither the id nor the payload is named: both come from outside and would land in logs. */
export function invalidId(record: RecordView, from: string, fault: string, cause?: unknown): IdempotencyError {
  return new IdempotencyError(
    'ID_INVALID',
    `The event id from ${from} ${fault}, so ${placeOf(record)} cannot be told apart from other records. ` +
      'Correct the producer, or give @Idempotent({ id }) a source that fits these records',
    { facts: factsOf(record), ...(cause === undefined ? {} : { cause }) },
  );
}

export function placeOf(record: RecordView): string {
  return `record ${record.topic}[${record.partition}]@${record.offset}`;
}

export function factsOf(record: RecordView): { topic: string; partition: number; offset: string } {
  return { topic: record.topic, partition: record.partition, offset: record.offset };
}

function faultOf(text: string): string | undefined {
  if (text.length === 0) return 'is empty';
  if (CONTROL.test(text)) return 'has a control character';
  if (LONE_SURROGATE.test(text)) return 'has a lone surrogate, which UTF-8 cannot carry';
  return undefined;
}
