import { headerBytes, type IdSource, type RecordView } from '../../shared/record.js';
import { joinedParts } from './compose.js';
import { headerText } from './header.js';
import { builtInSource } from './id-source.js';
import { admittedText, invalidId, textOf } from './id-text.js';

/**
 * The event id of a CloudEvent: `source|id`, escaped as in `join`, for ids are unique only within a source. Read from the headers `ce_source` and `ce_id`
 * (binary mode), or from the JSON value when `content-type` is `application/cloudevents+json` (structured mode); the same event has the same id in
 * both. Undefined when it is no CloudEvent or lacks one of the two. Throws ID_INVALID when one must not be used, or the value is not JSON.
 * (CloudEvents 1.0.2, Kafka protocol binding, §3.)
 */
export function cloudEvent(): IdSource {
  return builtInSource(
    'a CloudEvent (headers ce_source and ce_id, or content-type application/cloudevents+json)',
    (record) => {
      const [source, id] = isStructured(record)
        ? fromValue(record)
        : [headerText(record, 'ce_source'), headerText(record, 'ce_id')];
      return source === undefined || id === undefined ? undefined : joinedParts([source, id]);
    },
  );
}

function isStructured(record: RecordView): boolean {
  const contentTypes = headerBytes(record, 'content-type');
  return contentTypes.some((value) => /^\s*application\/cloudevents\+json\s*(?:;|$)/i.test(value.toString('latin1')));
}

function fromValue(record: RecordView): [source: string | undefined, id: string | undefined] {
  if (record.value === null) return [undefined, undefined];
  const event = parsed(record.value, record);
  return [attribute(event, 'source', record), attribute(event, 'id', record)];
}

function parsed(value: Buffer, record: RecordView): unknown {
  const text = textOf(value);
  if (text === undefined)
    throw invalidId(record, 'the CloudEvent in the value', 'cannot be read: the value is not UTF-8');
  try {
    return JSON.parse(text.replace(/^\uFEFF/, ''));
  } catch {
    // The parser's own error quotes the payload, so it is not passed on.
    throw invalidId(record, 'the CloudEvent in the value', 'cannot be read: the value is not JSON');
  }
}

/** Own properties only: an attribute is never taken from Object.prototype. A JSON null is an attribute that is not set (CloudEvents JSON format, §2.2). */
function attribute(event: unknown, name: string, record: RecordView): string | undefined {
  if (typeof event !== 'object' || event === null || !Object.hasOwn(event, name)) return undefined;
  const value = (event as Record<string, unknown>)[name];
  if (value === null) return undefined;
  const from = `the CloudEvent attribute ${name}`;
  if (typeof value !== 'string')
    throw invalidId(record, from, `is a JSON ${Array.isArray(value) ? 'array' : typeof value} and not a string`);
  return admittedText(value, from, record);
}
