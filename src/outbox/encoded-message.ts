import { createHash } from 'node:crypto';
import { IdempotencyError } from '../shared/errors.js';
import type { IdSource, RecordView } from '../shared/record.js';
import { uuidV7 } from './uuid.js';

export interface PublishOptions {
  /** Decides the partition; events of one key are sent in order. A string is sent as UTF-8. */
  key?: string | Buffer;
  /** Sent as they are. The names this package sets itself are refused. */
  headers?: Record<string, string | Buffer>;
  /** The event id consumers deduplicate by. Default a new UUID, version 7. */
  id?: string;
  /** A second publish to the topic under this key writes nothing, also after a restart: a text, or `contentHash` of this package. Not with `direct`. */
  dedupeKey?: string | (() => IdSource);
  /** Exactly there, instead of where the key says. */
  partition?: number;
  /** Adds the headers of CloudEvents' binary mode. */
  cloudEvent?: { source: string; type: string; subject?: string };
  /** Send it now, whatever becomes of the transaction around it, if there is one. */
  direct?: boolean;
}

/** A message as it will be sent: encoded once, so that every copy of it is the same. */
export interface EncodedMessage {
  readonly topic: string;
  readonly partition: number | null;
  readonly eventId: string;
  readonly key: Buffer | null;
  readonly value: Buffer | null;
  readonly headers: readonly (readonly [name: string, value: Buffer])[];
  readonly dedupeKey: string | undefined;
}

const TOPIC_NAME = /^(?!\.{1,2}$)[A-Za-z0-9._-]{1,249}$/;
const RESERVED = /^(?:event-id|content-type|ce_(?:specversion|id|source|type|time|subject))$/i;
// oxlint-disable-next-line no-control-regex -- what is looked for are control characters
const CONTROL = /[\u0000-\u001f\u007f]/;
const ID_BYTES = 255;
const LAST_PARTITION = 2 ** 31 - 1;

/** Throws VALUE_NOT_SERIALIZABLE, MESSAGE_TOO_LARGE or OPTIONS_INVALID: what cannot be stored or sent is refused here, and not met again by the relay. */
export function encodeMessage(
  topic: string,
  value: unknown,
  options: PublishOptions,
  { maxBytes, now = Date.now }: { readonly maxBytes: number; readonly now?: () => number },
): EncodedMessage {
  if (!TOPIC_NAME.test(topic))
    throw refused(topic, `the topic ${JSON.stringify(topic)} is no name of a topic in Kafka`);
  const key = encodedKey(topic, options.key);
  const body = encodedValue(topic, value);
  const eventId = options.id ?? uuidV7(now());
  const headers = [
    ...ownHeaders(topic, eventId, options, now),
    ...(isJson(value) ? [header('content-type', 'application/json')] : []),
    ...givenHeaders(topic, options.headers ?? {}),
  ];
  const partition = partitionOf(topic, options.partition);
  const message = { topic, partition, eventId, key, value: body, headers };
  const bytes = sizeOf(message);
  if (bytes > maxBytes) throw tooLarge(topic, bytes, maxBytes);
  return { ...message, dedupeKey: dedupeKeyOf(message, options.dedupeKey, now) };
}

/** Of key, value and headers. */
export function sizeOf({ key, value, headers }: Pick<EncodedMessage, 'key' | 'value' | 'headers'>): number {
  const inHeaders = headers.reduce((sum, [name, bytes]) => sum + Buffer.byteLength(name) + bytes.length, 0);
  return (key?.length ?? 0) + (value?.length ?? 0) + inHeaders;
}

function encodedKey(topic: string, key: string | Buffer | undefined): Buffer | null {
  if (key === undefined) return null;
  if (Buffer.isBuffer(key)) return key;
  if (typeof key === 'string') return text(topic, 'the key', key);
  throw refused(topic, `the key is of type ${typeof key}; give a string or a Buffer`);
}

function encodedValue(topic: string, value: unknown): Buffer | null {
  if (value === null) return null;
  if (Buffer.isBuffer(value)) return value;
  if (value instanceof Uint8Array) return Buffer.from(value.buffer, value.byteOffset, value.byteLength);
  if (typeof value === 'string') return text(topic, 'the value', value);
  let json: string | undefined;
  try {
    json = JSON.stringify(value);
  } catch (cause) {
    throw notSerializable(topic, `JSON.stringify refuses it: ${(cause as Error).message}`, cause);
  }
  if (json === undefined) throw notSerializable(topic, `a value of type ${typeof value} has no JSON`);
  return Buffer.from(json);
}

function isJson(value: unknown): boolean {
  return value !== null && typeof value !== 'string' && !(value instanceof Uint8Array);
}

function ownHeaders(
  topic: string,
  eventId: string,
  { cloudEvent }: PublishOptions,
  now: () => number,
): (readonly [string, Buffer])[] {
  if (eventId === '' || CONTROL.test(eventId) || Buffer.byteLength(eventId) > ID_BYTES)
    throw refused(topic, `the id is not 1 to ${ID_BYTES} bytes of text without control characters`);
  const id = text(topic, 'the id', eventId);
  if (cloudEvent === undefined) return [['event-id', id]];
  const { source, type, subject } = cloudEvent;
  const fields = { source, type, ...(subject === undefined ? {} : { subject }) };
  return [
    ['event-id', id],
    header('ce_specversion', '1.0'),
    ['ce_id', id],
    ...Object.entries(fields).map(([name, given]) => {
      if (typeof given !== 'string' || given === '' || CONTROL.test(given))
        throw refused(topic, `cloudEvent.${name} is not a text without control characters`);
      return [`ce_${name}`, text(topic, `cloudEvent.${name}`, given)] as const;
    }),
    header('ce_time', new Date(now()).toISOString()),
  ];
}

function givenHeaders(topic: string, headers: Record<string, string | Buffer>): (readonly [string, Buffer])[] {
  return Object.entries(headers).map(([name, value]) => {
    if (RESERVED.test(name))
      throw refused(topic, `the header ${name} is set by this package; use the options id and cloudEvent`);
    if (name === '' || name.includes('\0'))
      throw refused(topic, `the header name ${JSON.stringify(name)} cannot be stored`);
    if (Buffer.isBuffer(value)) return [name, value] as const;
    if (typeof value === 'string') return [name, text(topic, `the header ${name}`, value)] as const;
    throw notSerializable(topic, `the header ${name} is of type ${typeof value}; give a string or a Buffer`);
  });
}

function partitionOf(topic: string, partition: number | undefined): number | null {
  if (partition === undefined) return null;
  if (Number.isInteger(partition) && partition >= 0 && partition <= LAST_PARTITION) return partition;
  throw refused(topic, `the partition ${String(partition)} is no whole number from 0`);
}

function dedupeKeyOf(
  message: Omit<EncodedMessage, 'dedupeKey'>,
  given: PublishOptions['dedupeKey'],
  now: () => number,
): string | undefined {
  if (given === undefined) return undefined;
  const { topic } = message;
  const key = typeof given === 'function' ? given()(asRecord(message, now())) : given;
  if (typeof key !== 'string' || key === '')
    throw refused(topic, 'there is no dedupeKey: a tombstone has no content, so give a text');
  if (CONTROL.test(key)) throw refused(topic, 'the dedupeKey has control characters');
  text(topic, 'the dedupeKey', key);
  return Buffer.byteLength(key) <= ID_BYTES ? key : `sha256:${createHash('sha256').update(key).digest('hex')}`;
}

/** As a consumer would see it. */
function asRecord(message: Omit<EncodedMessage, 'dedupeKey'>, nowMs: number): RecordView {
  const { topic, partition, key, value } = message;
  const headers = new Map(message.headers.map(([name, bytes]) => [name, [bytes]]));
  const place = { topic, partition: partition ?? -1, offset: '-1', timestamp: new Date(nowMs) };
  return { ...place, key, value, headers, decoded: () => value };
}

function header(name: string, value: string): readonly [string, Buffer] {
  return [name, Buffer.from(value)];
}

/** A lone surrogate would be sent as another character. */
function text(topic: string, what: string, value: string): Buffer {
  const bytes = Buffer.from(value);
  if (bytes.length >= value.length && isWellFormed(value)) return bytes;
  throw notSerializable(topic, `${what} is no well-formed text`);
}

function isWellFormed(value: string): boolean {
  return (value as string & { isWellFormed(): boolean }).isWellFormed(); // ES2024, in every Node we run on
}

function notSerializable(topic: string, why: string, cause?: unknown): IdempotencyError {
  return new IdempotencyError(
    'VALUE_NOT_SERIALIZABLE',
    `The event for ${topic} cannot be sent: ${why}. Give a Buffer, a string, null for a tombstone, or what has a JSON; a BigInt as a string`,
    { cause, facts: { topic } },
  );
}

function refused(topic: string, why: string): IdempotencyError {
  return new IdempotencyError('OPTIONS_INVALID', `The event cannot be published: ${why}`, { facts: { topic } });
}

function tooLarge(topic: string, bytes: number, maxBytes: number): IdempotencyError {
  return new IdempotencyError(
    'MESSAGE_TOO_LARGE',
    `The event for ${topic} has ${bytes} bytes of key, value and headers, and outbox.maxBytes is ${maxBytes}. Publish less, such as a reference to it, or raise maxBytes ` +
      "together with the topic's max.message.bytes",
    { facts: { topic } },
  );
}
