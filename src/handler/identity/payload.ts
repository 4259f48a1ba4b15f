import { IdempotencyError } from '../../shared/errors.js';
import type { IdSource, RecordView } from '../../shared/record.js';
import { builtInSource } from './id-source.js';
import { admittedText, invalidId } from './id-text.js';

/**
 * The event id is the value at `path` of the decoded payload, names separated by dots: `payload('meta.id')`, `payload('items.0.id')`. Only the payload's
 * own enumerable properties are seen (a name with a dot in it needs a function). Missing or null: undefined. A string is taken as it is, a whole number as its digits
 * (`7` and `"7"` are one id). Throws ID_INVALID for everything else: a number beyond 2^53 was rounded by JSON.parse and may stand for another
 * event's. Throws DECODE_FAILED as decoding does.
 */
export function payload(path: string): IdSource {
  const names = typeof path === 'string' ? path.split('.') : [''];
  if (names.includes('')) {
    throw new IdempotencyError(
      'OPTIONS_INVALID',
      `payload() takes names separated by dots, for example payload('meta.id'); it got ${JSON.stringify(path)}`,
    );
  }
  return builtInSource(`payload '${path}'`, (record) =>
    idText(valueAt(record.decoded(), names), `payload '${path}'`, record),
  );
}

function valueAt(root: unknown, names: readonly string[]): unknown {
  let value = root;
  for (const name of names) {
    if (typeof value !== 'object' || value === null || !Object.prototype.propertyIsEnumerable.call(value, name))
      return undefined;
    value = (value as Record<string, unknown>)[name];
  }
  return value;
}

function idText(value: unknown, from: string, record: RecordView): string | undefined {
  switch (typeof value) {
    case 'undefined':
      return undefined;
    case 'string':
      return admittedText(value, from, record);
    case 'bigint':
      return String(value);
    case 'number':
      if (Number.isSafeInteger(value)) return String(value);
      throw invalidId(
        record,
        from,
        'is a number that is no exact integer (beyond 2^53 JSON numbers are rounded; send it as a string)',
      );
    default:
      if (value === null) return undefined;
      throw invalidId(
        record,
        from,
        `is ${Array.isArray(value) ? 'an array' : `a value of type ${typeof value}`} where a string or a whole number is needed`,
      );
  }
}
