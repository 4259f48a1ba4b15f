import { gunzipSync } from 'node:zlib';
import { CompressionCodecs, CompressionTypes, type KafkaMessage } from 'kafkajs';
import { describe, expect, it, onTestFinished } from 'vitest';
import { Decoding, type DecodingSettings } from '#src/kafka/codecs.js';
import { isMarker, undecodableOf } from '#src/kafka/undecodable-marker.js';
import { fetched, recordBatch, valuesOf } from './record-batches.js';

const decoding = (settings: Partial<DecodingSettings> = {}) =>
  new Decoding({ codecs: {}, batchBytes: 1_000_000, ...settings });

const read = (batches: readonly Buffer[], settings: Partial<DecodingSettings> = {}, from?: number) =>
  decoding(settings).run(() => fetched(batches, from));

const zstdLike = () => ({ decompress: (compressed: Buffer) => gunzipSync(compressed) });

/** Where the first marker is, and what it says. */
function marked(messages: readonly KafkaMessage[]) {
  const at = messages.findIndex(isMarker);
  return at === -1 ? undefined : { at, ...undecodableOf(messages[at]!) };
}

describe('a batch of a codec that nobody gave', () => {
  it('becomes a marker that names the codec and the first offset, behind the records in front of it', async () => {
    const front = recordBatch({ at: 5, values: ['a', 'b'], codec: 'gzip' });
    const { messages } = await read([front, recordBatch({ at: 7, values: ['c', 'd', 'e'], codec: 'zstd' })]);
    expect(marked(messages)).toMatchObject({ at: 2, code: 'CODEC_MISSING', firstOffset: 7n });
    expect(marked(messages)?.detail).toMatch(/kafka\.codecs\.zstd/);
    expect(valuesOf(messages.slice(0, 2))).toEqual(['a', 'b']);
    expect(messages).toHaveLength(5);
    expect(new Set(messages.slice(2).map(({ offset }) => offset))).toEqual(new Set(['9']));
  });

  it('is not lost when the position is in the middle of it', async () => {
    const { messages } = await read([recordBatch({ at: 7, values: ['c', 'd', 'e'], codec: 'lz4' })], {}, 9);
    expect(marked(messages)).toMatchObject({ at: 0, firstOffset: 7n });
  });

  it('is skipped, exactly, when its transaction was aborted', async () => {
    const batch = recordBatch({ at: 7, values: ['c', 'd', 'e'], codec: 'zstd', producerId: 3 });
    const aborted = [{ producerId: '3', firstOffset: '7' }];
    const found = await decoding().run(() => fetched([batch], 7, aborted));
    expect(found.messages).toEqual([]);
    expect([found.firstOffset(), found.lastOffset()]).toEqual(['9', '9']);
  });

  it('of 100,000 records fits too', async () => {
    const values = Array.from({ length: 100_000 }, () => '');
    const { messages } = await read([recordBatch({ at: 0, values, codec: 'snappy' })]);
    expect(messages).toHaveLength(100_000);
    expect(marked(messages)).toMatchObject({ at: 0, code: 'CODEC_MISSING' });
  });

  it('is read once one is given, in the options or to kafkajs', async () => {
    const batch = recordBatch({ at: 0, values: ['a'], codec: 'zstd' });
    expect(valuesOf((await read([batch], { codecs: { zstd: zstdLike } })).messages)).toEqual(['a']);
    const before = CompressionCodecs[CompressionTypes.ZSTD];
    onTestFinished(() => void (CompressionCodecs[CompressionTypes.ZSTD] = before));
    CompressionCodecs[CompressionTypes.ZSTD] = zstdLike;
    expect(valuesOf((await read([batch])).messages)).toEqual(['a']);
  });

  it('whose codec throws becomes a marker that says so', async () => {
    const zstd = () => ({
      decompress: () => {
        throw new Error('bad frame');
      },
    });
    const { messages } = await read([recordBatch({ at: 0, values: ['a'], codec: 'zstd' })], { codecs: { zstd } });
    expect(marked(messages)?.detail).toMatch(/codec for that failed: Error: bad frame/);
  });
});

describe('a batch that is too large after decompression', () => {
  const bomb = recordBatch({ at: 3, values: [Buffer.alloc(5_000_000)], codec: 'gzip' });

  it('becomes a marker that names the limit', async () => {
    const { messages } = await read([recordBatch({ at: 0, values: ['a', 'b', 'c'] }), bomb]);
    expect(marked(messages)).toMatchObject({ at: 3, code: 'BATCH_TOO_LARGE', firstOffset: 3n });
    expect(marked(messages)?.detail).toMatch(/limits\.batchBytes \(1000000\)/);
  });

  it('is read under a higher limit', async () => {
    expect((await read([bomb], { batchBytes: 6_000_000 })).messages[0]?.value).toHaveLength(5_000_000);
  });

  it('is one for a codec of the user too', async () => {
    const batch = recordBatch({ at: 3, values: [Buffer.alloc(5_000_000)], codec: 'zstd' });
    const { messages } = await read([batch], { codecs: { zstd: zstdLike } });
    expect(marked(messages)).toMatchObject({ code: 'BATCH_TOO_LARGE' });
  });

  it('several batches that only together are too large come one fetch after another', async () => {
    const batches = [0, 1, 2].map((at) => recordBatch({ at, values: [Buffer.alloc(400_000, at)], codec: 'gzip' }));
    const first = await read(batches);
    expect(first.messages.map(({ offset }) => offset)).toEqual(['0', '1']);
    expect(marked(first.messages)).toBeUndefined();
    expect((await read(batches.slice(2), {}, 2)).messages.map(({ offset }) => offset)).toEqual(['2']);
  });

  it('one of more records than kafkajs can read fails by name, after what stands in front', async () => {
    const values = Array.from({ length: 100_001 }, () => '');
    const huge = recordBatch({ at: 2, values, codec: 'gzip' });
    const front = recordBatch({ at: 0, values: ['a', 'b'], codec: 'gzip' });
    expect(valuesOf((await read([front, huge])).messages)).toEqual(['a', 'b']);
    await expect(read([huge])).rejects.toMatchObject({ code: 'BATCH_TOO_LARGE', facts: { offset: '2' } });
  });
});

describe('who is concerned', () => {
  const zstd = recordBatch({ at: 0, values: ['a'], codec: 'zstd' });

  it('other consumers of the process fail as kafkajs makes them', async () => {
    decoding({ codecs: { zstd: zstdLike } });
    await expect(fetched([zstd])).rejects.toThrow('ZSTD compression not implemented');
    const bomb = recordBatch({ at: 0, values: [Buffer.alloc(5_000_000)], codec: 'gzip' });
    expect((await fetched([bomb])).messages[0]?.value).toHaveLength(5_000_000);
  });

  it('so do those that are begun by what ours calls', async () => {
    await expect(decoding().run(() => Decoding.leave(() => fetched([zstd])))).rejects.toThrow('not implemented');
  });

  it('two consumers of ours each have their own codecs', async () => {
    const one = decoding({ codecs: { zstd: zstdLike } });
    const other = decoding();
    const [read1, read2] = await Promise.all([one.run(() => fetched([zstd])), other.run(() => fetched([zstd]))]);
    expect(marked(read1.messages)).toBeUndefined();
    expect(marked(read2.messages)).toMatchObject({ at: 0 });
  });

  it('a record with the key of a marker of another process is a record', () => {
    const forged = { key: Buffer.alloc(16), value: Buffer.from('{}') } as KafkaMessage;
    expect(isMarker(forged)).toBe(false);
  });

  it('a batch in the format before Kafka 0.11 fails by name', async () => {
    const compressed = Buffer.from('no gzip');
    const old = decoding().decompress(
      'lz4',
      () => {
        throw new Error('not implemented');
      },
      compressed,
    );
    await expect(old).rejects.toThrow(/before 0\.11 .*kafka\.codecs\.lz4/);
    await expect(old).rejects.toMatchObject({ code: 'CODEC_MISSING' });
  });
});
