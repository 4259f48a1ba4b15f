import { IdempotencyError } from '../../shared/errors.js';
import { headerBytes, type IdSource, type RecordView } from '../../shared/record.js';
import { builtInSource } from './id-source.js';
import { admittedText, invalidId, textOf } from './id-text.js';

/**
 * The event id is the value of the record header `name` (case matters, as in Kafka). No such header: undefined. Throws ID_INVALID when it comes more
 * than once, is empty, is not UTF-8 or has a control character: which of two ids counts must not be for the sender to play with.
 */
export function header(name: string): IdSource {
  if (typeof name !== 'string' || name === '') {
    throw new IdempotencyError(
      'OPTIONS_INVALID',
      `header() takes the name of a record header, for example header('event-id'); it got ${JSON.stringify(name)}`,
    );
  }
  return builtInSource(`header '${name}'`, (record) => headerText(record, name));
}

/** The event id Debezium's outbox event router puts into the header `id`. The same as `header('id')`. */
export function debezium(): IdSource {
  return header('id');
}

/** The single value of a header as an id or a part of one. */
export function headerText(record: RecordView, name: string): string | undefined {
  const values = headerBytes(record, name);
  const bytes = values[0];
  if (bytes === undefined) return undefined;
  const from = `header '${name}'`;
  if (values.length > 1)
    throw invalidId(record, from, `comes ${values.length} times where exactly one value is needed`);
  const text = textOf(bytes);
  if (text === undefined) throw invalidId(record, from, 'is not UTF-8');
  return admittedText(text, from, record);
}
