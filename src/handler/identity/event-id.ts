import { IdempotencyError } from '../../shared/errors.js';
import type { IdSource, RecordView } from '../../shared/record.js';
import { cloudEvent } from './cloud-event.js';
import { firstOf } from './compose.js';
import { header } from './header.js';
import { idFrom, looksFor } from './id-source.js';
import { factsOf, isReserved, placeOf, sha256 } from './id-text.js';

/** Longer ids are stored as their hash: an index row of PostgreSQL holds 2,704 bytes, and a good event must not fail for its id's length. */
const LONGEST_ID_BYTES = 255;
/** In front of a form of ours (`hex:…` of a long key) that has to be hashed: never UTF-8, so its hash is not that of the same text from outside. */
const OURS = Buffer.from([0xff]);

/** Where the event id comes from unless `@Idempotent({ id })` says otherwise. */
export const defaultIdSource: IdSource = firstOf(header('event-id'), cloudEvent());

/**
 * The id under which an event is claimed: what `source` finds in the record, never cut.
 * - Over 255 bytes, or come in starting with `hex:` or `sha256:`: `sha256:` and 64 hex digits of it. So different ids stay different, and nothing
 *   from outside can equal a form this package writes.
 * - Throws ID_MISSING when there is none, ID_INVALID when there is one that must not be used, or a user's function returned something else.
 */
export function eventIdOf(source: IdSource, record: RecordView): string {
  const id = idFrom(source, record);
  if (id === undefined) throw missingId(source, record);
  if (Buffer.byteLength(id) <= LONGEST_ID_BYTES) return id;
  return isReserved(id) ? sha256(OURS, id) : sha256(id);
}

function missingId(source: IdSource, record: RecordView): IdempotencyError {
  return new IdempotencyError(
    'ID_MISSING',
    `There is no event id in ${placeOf(record)}: looked for ${looksFor(source)}. Without one a redelivery would change the database again, so the handler ` +
      "is not called. Let the producer send the header event-id, or give @Idempotent({ id }) a source these records have, for example payload('id') or position()",
    { facts: factsOf(record) },
  );
}
