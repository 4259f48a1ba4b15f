import { constants } from 'node:buffer';
import { promisify } from 'node:util';
import { unzip } from 'node:zlib';
// Node finds some of its names only on the whole module, CompressionCodecs among them.
import kafkajs, { CompressionTypes } from 'kafkajs';
import { AsyncSlot } from '../shared/async-slot.js';
import type { Codec, CodecName } from '../shared/codec.js';
import { IdempotencyError } from '../shared/errors.js';
import { batchHeader, type BatchHeader } from './batch-header.js';
import { markerRecords, type Undecodable } from './undecodable-marker.js';

/** kafkajs spreads the records of a batch as arguments of one call, which overflows the stack at some 120,000. */
const MOST_RECORDS = 100_000;

const TYPES = {
  gzip: CompressionTypes.GZIP,
  snappy: CompressionTypes.Snappy,
  lz4: CompressionTypes.LZ4,
  zstd: CompressionTypes.ZSTD,
} as const;

type Name = keyof typeof TYPES;
type Problem = Omit<Undecodable, 'firstOffset'>;

export interface DecodingSettings {
  readonly codecs: Readonly<Partial<Record<CodecName, () => Codec>>>;
  /** The most that a batch may hold after decompression. */
  readonly batchBytes: number;
}

const decoding = new AsyncSlot<Decoding>('decoding');
const OURS = Symbol('nestjs-kafka-idempotency codec');

/**
 * How the batches of one consumer are decompressed. kafkajs has one registry of codecs per process, gives a codec nothing but bytes, and lets a codec
 * that throws end the whole consumer without a word about the partition. So:
 * - the registry's codecs are wrapped, and what is ours happens only inside {@link Decoding.run}: other consumers of the process notice nothing;
 * - a batch that cannot be read, or is larger than the limit, becomes marker records, which its partition's reader recognises;
 * - the batches of one partition in one fetch are together held to the limit too: what is beyond it comes with the next fetch.
 * What cannot be told that way (a batch of more than 100,000 records, or of Kafka's old formats) ends the consumer with a message that names it.
 */
export class Decoding {
  readonly #codecs = new Map<Name, Codec>();
  readonly #runs = new WeakMap<ArrayBufferLike, { readonly end: number; readonly bytes: number }>();

  constructor(private readonly settings: DecodingSettings) {
    const gunzip = promisify(unzip);
    const maxOutputLength = Math.min(settings.batchBytes, constants.MAX_LENGTH);
    this.#codecs.set('gzip', { decompress: (compressed) => gunzip(compressed, { maxOutputLength }) });
    for (const name of ['snappy', 'lz4', 'zstd'] as const) {
      const codec = settings.codecs[name]?.();
      if (codec !== undefined) this.#codecs.set(name, codec);
    }
    wrapRegistry();
  }

  /** What fetches and decodes has to begin in here. */
  run<T>(work: () => T): T {
    return decoding.run(this, work);
  }

  /** For calls back into what does not decode: a consumer that a handler starts is none of ours. */
  static leave<T>(work: () => T): T {
    return decoding.run(undefined, work);
  }

  async decompress(name: Name, registered: () => Codec, compressed: Buffer): Promise<Buffer> {
    const header = batchHeader(compressed);
    if (header === undefined) return this.#decompressOld(name, registered, compressed);
    const before = this.#bytesBefore(header, compressed);
    if (header.records > MOST_RECORDS) {
      if (before > 0) throw new LaterError();
      throw tooManyRecords(header);
    }
    const found = await this.#plain(name, registered, compressed);
    const plain = Buffer.isBuffer(found) ? found : markerRecords(header, found);
    if (before > 0 && before + plain.length > this.settings.batchBytes) throw new LaterError();
    this.#runs.set(compressed.buffer, { end: header.end, bytes: before + plain.length });
    return plain;
  }

  /** Decompressed bytes of the batches right in front of this one in the same response, which are of the same partition. */
  #bytesBefore(header: BatchHeader, { buffer }: Buffer): number {
    const run = this.#runs.get(buffer);
    return run?.end === header.begin ? run.bytes : 0;
  }

  async #plain(name: Name, registered: () => Codec, compressed: Buffer): Promise<Buffer | Problem> {
    const codec = this.#codecs.get(name) ?? registeredCodec(registered);
    if (codec === undefined) return missing(name);
    try {
      const plain = await codec.decompress(compressed);
      return plain.length > this.settings.batchBytes ? this.#tooLarge() : plain;
    } catch (error) {
      return (error as NodeJS.ErrnoException).code === 'ERR_BUFFER_TOO_LARGE' ? this.#tooLarge() : broken(name, error);
    }
  }

  /** Message sets have no place for markers. Kafka 4 does not give them out any more. */
  async #decompressOld(name: Name, registered: () => Codec, compressed: Buffer): Promise<Buffer> {
    const plain = await this.#plain(name, registered, compressed);
    if (Buffer.isBuffer(plain)) return plain;
    throw new IdempotencyError(
      plain.code,
      `A batch in the format of Kafka before 0.11 ends the consumer: ${plain.detail}`,
    );
  }

  #tooLarge(): Problem {
    const detail = `it holds more than limits.batchBytes (${this.settings.batchBytes}) after decompression. Raise the limit if this machine has the memory`;
    return { code: 'BATCH_TOO_LARGE', detail };
  }
}

/** kafkajs takes an error of this name for the end of what fits in a response, hands over what is in front, and fetches the rest again. */
class LaterError extends Error {
  override readonly name = 'KafkaJSPartialMessageError';
}

/** Once per copy of this package; a codec the application registers with kafkajs later is wrapped by the next consumer. */
function wrapRegistry(): void {
  const registry = kafkajs.CompressionCodecs as Record<CompressionTypes, (() => Codec) & { [OURS]?: true }>;
  for (const [name, type] of Object.entries(TYPES) as [Name, CompressionTypes][]) {
    const registered = registry[type];
    if (registered[OURS] === true) continue;
    registry[type] = Object.assign(
      () => {
        const ours = decoding.current;
        if (ours === undefined) return registered();
        return { decompress: (compressed: Buffer) => ours.decompress(name, registered, compressed) };
      },
      { [OURS]: true as const },
    );
  }
}

/** What the application itself has registered with kafkajs; else kafkajs throws. */
function registeredCodec(registered: () => Codec): Codec | undefined {
  try {
    return registered();
  } catch {
    return undefined;
  }
}

function missing(name: Name): Problem {
  const detail = `it is compressed with ${name}, and no codec is given for that. Give one in kafka.codecs.${name}; nothing is skipped, and the next start goes on here`;
  return { code: 'CODEC_MISSING', detail };
}

function broken(name: Name, error: unknown): Problem {
  const detail = `it is compressed with ${name}, and the codec for that failed: ${String(error)}`;
  return { code: 'CODEC_MISSING', detail };
}

function tooManyRecords({ records, baseOffset }: BatchHeader): IdempotencyError {
  const message = `A batch of ${records} records at offset ${baseOffset} ends the consumer: kafkajs can read ${MOST_RECORDS} at once. Lower batch.size of the producer, or move the group's offset behind it`;
  return new IdempotencyError('BATCH_TOO_LARGE', message, { facts: { offset: baseOffset.toString() } });
}
