import { isUtf8 } from 'node:buffer';
import { IdempotencyError } from '../shared/errors.js';
import type { RecordView } from '../shared/record.js';

const BOM = '\uFEFF';

/**
 * The payload of a record value.
 * - `json`: a tombstone is `null`, zero bytes are `''`, a first byte of zero (schema-registry framing) leaves the Buffer, as Nest does; anything else
 *   has to be UTF-8 (a byte order mark is skipped) and JSON not nested deeper than `jsonDepth`.
 * - `text`: fatal UTF-8. `bytes`: a copy of the bytes.
 *
 * Throws DECODE_FAILED: half a JSON text is a failure, never a string.
 */
export function decodeValue(value: Buffer | null, as: 'json' | 'text' | 'bytes', jsonDepth: number): unknown {
  if (value === null) return null;
  if (as === 'bytes' || (as === 'json' && value[0] === 0)) return Buffer.from(value);
  const text = decodeText(value);
  if (as === 'text' || value.length === 0) return text;
  if (mayNestDeeperThan(text, jsonDepth) && nestsDeeperThan(value, jsonDepth)) {
    throw new IdempotencyError(
      'DECODE_FAILED',
      `The value is JSON nested deeper than limits.jsonDepth (${jsonDepth}). Raise the limit if such events are wanted`,
    );
  }
  try {
    return JSON.parse(text);
  } catch (cause) {
    // The parser's message quotes the payload, so it stays in `cause` and out of the text.
    throw new IdempotencyError(
      'DECODE_FAILED',
      `The value (${value.length} bytes) is not JSON. Set decode: 'text' or 'bytes' for this handler if it is not meant to be`,
      { cause },
    );
  }
}

const DECODE_JSON_DEPTH = 100;

/**
 * A `decode` function for JSON values. With `unwrap`, a value that is a JSON string holding JSON once more is parsed twice, as change-data-capture
 * connectors write it. Default `{ unwrap: false }`, nested at most 100 deep.
 */
export function decodeJson({ unwrap = false }: { readonly unwrap?: boolean } = {}): (record: RecordView) => unknown {
  return (record) => {
    const payload = decodeValue(record.value, 'json', DECODE_JSON_DEPTH);
    return unwrap && typeof payload === 'string'
      ? decodeValue(Buffer.from(payload), 'json', DECODE_JSON_DEPTH)
      : payload;
  };
}

/** Keys and headers: text if the bytes are UTF-8 (a byte order mark stays), else a copy of the bytes. Never parsed. */
export function textOrBytes(bytes: Buffer): string | Buffer {
  return isUtf8(bytes) ? bytes.toString() : Buffer.from(bytes);
}

function decodeText(value: Buffer): string {
  if (isUtf8(value)) {
    const text = value.toString();
    return text.startsWith(BOM) ? text.slice(1) : text;
  }
  throw new IdempotencyError(
    'DECODE_FAILED',
    `The value (${value.length} bytes) is not UTF-8 text. Set decode: 'bytes' for this handler if it is binary`,
  );
}

const QUOTE = 0x22;
const BACKSLASH = 0x5c;
const OPENING = new Set([0x5b, 0x7b]);
const CLOSING = new Set([0x5d, 0x7d]);

/** It would have to open so many arrays and objects. Looked for in the text, where that is several times as fast as byte by byte. */
function mayNestDeeperThan(json: string, limit: number): boolean {
  let opened = 0;
  for (const opening of ['{', '[']) {
    for (let at = json.indexOf(opening); at !== -1; at = json.indexOf(opening, at + 1)) {
      opened += 1;
      if (opened > limit) return true;
    }
  }
  return false;
}

function nestsDeeperThan(json: Buffer, limit: number): boolean {
  let depth = 0;
  let inString = false;
  for (let at = 0; at < json.length; at += 1) {
    const byte = json[at] as number;
    if (inString) {
      if (byte === BACKSLASH) at += 1;
      else if (byte === QUOTE) inString = false;
    } else if (byte === QUOTE) inString = true;
    else if (OPENING.has(byte)) {
      depth += 1;
      if (depth > limit) return true;
    } else if (CLOSING.has(byte)) depth -= 1;
  }
  return false;
}
