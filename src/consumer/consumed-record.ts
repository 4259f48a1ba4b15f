import type { KafkaMessage } from 'kafkajs';
import type { Decode } from '../shared/handler-profile.js';
import type { StoredRecord } from '../shared/parking.js';
import type { SourceRecord } from '../shared/record.js';
import { decodeValue } from './decode.js';

/** A fetched record with its raw bytes. Views made of it for one delivery each hand out copies, so no handler can change what the next one gets. */
export class ConsumedRecord {
  readonly offset: bigint;
  readonly bytes: number;

  constructor(
    readonly topic: string,
    readonly partition: number,
    readonly message: KafkaMessage,
  ) {
    this.offset = BigInt(message.offset);
    this.bytes = (message.key?.length ?? 0) + (message.value?.length ?? 0);
  }

  /** A record that was kept elsewhere, to be delivered as if it came from Kafka. */
  static from({ topic, partition, offset, timestamp, key, value, headers }: StoredRecord): ConsumedRecord {
    return new ConsumedRecord(topic, partition, {
      key,
      value,
      headers: groupedHeaders(headers),
      offset: offset.toString(),
      timestamp: String(timestamp.getTime()),
      attributes: 0,
      size: 0,
    } as KafkaMessage);
  }

  /** What outlives this delivery: the bytes themselves, which nobody changes. */
  get stored(): StoredRecord {
    const { key, value, timestamp, headers } = this.message;
    return {
      topic: this.topic,
      partition: this.partition,
      offset: this.offset,
      timestamp: new Date(Number(timestamp)),
      key: key ?? null,
      value: value ?? null,
      headers: valuesOf(headers).flatMap(([name, values]) =>
        values.map((value): [string, Buffer | null] => [name, value === null ? null : Buffer.from(value)]),
      ),
    };
  }

  view(decode: Decode, jsonDepth: number): SourceRecord {
    return new DecodedView(this, decode, jsonDepth);
  }
}

class DecodedView implements SourceRecord {
  readonly #record: ConsumedRecord;
  readonly #decode: Decode;
  readonly #jsonDepth: number;
  #key: Buffer | null | undefined;
  #value: Buffer | null | undefined;
  #headers: ReadonlyMap<string, readonly Buffer[]> | undefined;

  constructor(record: ConsumedRecord, decode: Decode, jsonDepth: number) {
    this.#record = record;
    this.#decode = decode;
    this.#jsonDepth = jsonDepth;
  }

  get topic(): string {
    return this.#record.topic;
  }
  get partition(): number {
    return this.#record.partition;
  }
  get offset(): string {
    return this.#record.message.offset;
  }
  get timestamp(): Date {
    return new Date(Number(this.#record.message.timestamp));
  }
  get key(): Buffer | null {
    return (this.#key ??= copyOf(this.#record.message.key));
  }
  get value(): Buffer | null {
    return (this.#value ??= copyOf(this.#record.message.value));
  }
  get rawValue(): Buffer | null {
    return this.#record.message.value ?? null;
  }
  rawHeader(name: string): readonly Buffer[] {
    const { headers } = this.#record.message;
    if (headers === undefined || !Object.hasOwn(headers, name)) return [];
    return bytesOf(headers[name]).filter((value) => value !== null);
  }
  get headers(): ReadonlyMap<string, readonly Buffer[]> {
    return (this.#headers ??= headersOf(this.#record.message.headers));
  }
  decoded(): unknown {
    if (typeof this.#decode === 'function') return this.#decode(this);
    return decodeValue(this.#record.message.value ?? null, this.#decode, this.#jsonDepth);
  }
}

/** As kafkajs gives them: a header that comes more than once is an array. Own properties, whatever their names are. */
function groupedHeaders(headers: StoredRecord['headers']): KafkaMessage['headers'] {
  const grouped = new Map<string, Buffer | Buffer[]>();
  for (const [name, value] of headers) {
    const before = grouped.get(name);
    grouped.set(name, before === undefined ? value! : [...(Array.isArray(before) ? before : [before]), value!]); // null has no place in kafkajs's types
  }
  return Object.fromEntries(grouped);
}

function copyOf(bytes: Buffer | null | undefined): Buffer | null {
  return bytes === null || bytes === undefined ? null : Buffer.from(bytes);
}

/** A Map, so that a header called `__proto__` is only a header. Absent headers (records written before Kafka 0.11) are an empty map. */
function headersOf(headers: KafkaMessage['headers']): ReadonlyMap<string, readonly Buffer[]> {
  const map = new Map<string, readonly Buffer[]>();
  for (const [name, given] of Object.entries(headers ?? {})) {
    // Mostly there is one value; this is done for every record.
    const copies = Buffer.isBuffer(given) ? [Buffer.from(given)] : copiesOf(given);
    if (copies.length > 0) map.set(name, copies);
  }
  return map;
}

function copiesOf(given: unknown): Buffer[] {
  return bytesOf(given).flatMap((value) => (value === null ? [] : Buffer.from(value)));
}

/** kafkajs gives null for a header without a value and, for one that is called like a member of every object (`constructor`), that member before its values. */
export function valuesOf(headers: KafkaMessage['headers']): [name: string, values: (Buffer | null)[]][] {
  return Object.entries(headers ?? {}).map(([name, given]) => [name, bytesOf(given)]);
}

function bytesOf(given: unknown): (Buffer | null)[] {
  if (Buffer.isBuffer(given)) return [given];
  const all: unknown[] = Array.isArray(given) ? given : [given];
  return all.filter((value): value is Buffer | null => value === null || Buffer.isBuffer(value));
}

/** Records without a key are in order among themselves. */
export function keyOf({ message: { key } }: ConsumedRecord): string | null {
  return key?.toString('latin1') ?? null;
}
