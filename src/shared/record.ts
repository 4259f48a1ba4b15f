export interface TopicPlace {
  readonly topic: string;
  readonly partition: number;
}

/**
 * A Kafka record as it came: raw bytes, never changed by decoding. Key, value and headers keep their bytes; a header may come more than once.
 * `offset` is a decimal string of up to 19 digits (compare with BigInt only).
 */
export interface RecordView {
  readonly topic: string;
  readonly partition: number;
  readonly offset: string;
  readonly timestamp: Date;
  /** null: the record has no key. */
  readonly key: Buffer | null;
  /** null: a tombstone. */
  readonly value: Buffer | null;
  readonly headers: ReadonlyMap<string, readonly Buffer[]>;
  /** The value as the handler's `decode` option gives it; a fresh copy at each call. Throws DECODE_FAILED. */
  decoded(): unknown;
}

/** A record as the rooms of this package see it. */
export interface SourceRecord extends RecordView {
  /** The bytes of the value themselves, not a copy: only to be read, and not to be given to anybody. */
  readonly rawValue: Buffer | null;
  /** The same of a header's values; empty without such a header. */
  rawHeader(name: string): readonly Buffer[];
}

/** A header's values, only to be read: of a record of ours without a copy of all its headers. */
export function headerBytes(record: RecordView, name: string): readonly Buffer[] {
  return 'rawHeader' in record ? (record as SourceRecord).rawHeader(name) : (record.headers.get(name) ?? []);
}

/**
 * Where a record's event id comes from. `undefined`: none here, try the next source. Throws ID_INVALID when there is one that must not be used.
 */
export type IdSource = (record: RecordView) => string | undefined;
