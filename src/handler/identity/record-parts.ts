import type { IdSource } from '../../shared/record.js';
import { joinedParts } from './compose.js';
import { builtInSource } from './id-source.js';
import { admittedText, invalidId, isPlainText, sha256 } from './id-text.js';

/** Not valid in UTF-8, so what starts with it is never the text of an id. */
const NOT_TEXT = Buffer.from([0xff]);

/**
 * The event id is the record's key: for topics with one event per key. A key that is not UTF-8 or has control characters (a binary number) gives `hex:…` of
 * its bytes. No key: undefined. Throws ID_INVALID for a key of zero bytes.
 */
export function recordKey(): IdSource {
  return builtInSource('the record key', (record) => {
    if (record.key === null) return undefined;
    if (record.key.length === 0) throw invalidId(record, 'the record key', 'is empty');
    return isPlainText(record.key)
      ? admittedText(record.key.toString('utf8'), 'the record key', record)
      : `hex:${record.key.toString('hex')}`;
  });
}

/**
 * The event id is where the record stands: `topic|partition|offset|timestamp` (the timestamp, in milliseconds, tells a topic that was made anew). Recognises redeliveries,
 * but not an event that the producer sent twice.
 */
export function position(): IdSource {
  return builtInSource('the position', ({ topic, partition, offset, timestamp }) =>
    joinedParts([topic, String(partition), offset, String(timestamp.getTime())]),
  );
}

/**
 * The event id is `sha256:…` over key and value: for producers that give no id and never mean the same content twice. With the key, for `{"paid":true}` of two
 * orders is two events. A tombstone has no content: undefined.
 */
export function contentHash(): IdSource {
  return builtInSource('the content', ({ key, value }) => {
    if (value === null) return undefined;
    const keyLength = Buffer.alloc(4);
    keyLength.writeInt32BE(key === null ? -1 : key.length);
    return sha256(NOT_TEXT, 'content', keyLength, key ?? '', value);
  });
}
