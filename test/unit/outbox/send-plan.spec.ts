import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { Blocks } from '#src/outbox/blocks.js';
import { lineOf, type OutboxRow } from '#src/outbox/outbox-row.js';
import { partsOf, planOf } from '#src/outbox/send-plan.js';

const row = (id: number, key: string | null, parts: Partial<OutboxRow> = {}): OutboxRow => ({
  id: BigInt(id),
  shard: 0,
  topic: 't',
  partition: null,
  eventId: `e${id}`,
  key: key === null ? null : Buffer.from(key),
  value: Buffer.alloc(10),
  headerNames: [],
  headerValues: [],
  attempts: 0,
  waitMs: 0,
  ...parts,
});

const rows = fc
  .array(
    fc.record({
      key: fc.constantFrom('a', 'b', 'c', null),
      waitMs: fc.constantFrom(-5, 0, 100),
      topic: fc.constantFrom('t', 'u'),
    }),
    { maxLength: 30 },
  )
  .map((given) => given.map(({ key, ...rest }, at) => row(at + 1, key, rest)));

describe('the plan of what may be sent', () => {
  it('sends of each key what stands in front of the first that must wait, in order, and of the others everything', () => {
    fc.assert(
      fc.property(rows, fc.subarray(['a', 'b', 'c']), (all, blocked) => {
        const isBlocked = ({ key }: OutboxRow) => key !== null && blocked.includes(key.toString());
        const { send, waiting } = planOf(all, isBlocked);
        for (const line of new Set(all.map(lineOf))) {
          const ofLine = all.filter((one) => lineOf(one) === line);
          const stop = ofLine.findIndex((one) => isBlocked(one) || one.waitMs > 0);
          expect(send.filter((one) => lineOf(one) === line)).toEqual(stop === -1 ? ofLine : ofLine.slice(0, stop));
          const waits = waiting.filter((one) => lineOf(one) === line);
          expect(waits).toEqual(stop === -1 || isBlocked(ofLine[stop]!) ? [] : [ofLine[stop]]);
        }
        expect(send.map(({ id }) => id)).toEqual(send.map(({ id }) => id).toSorted((x, y) => Number(x - y)));
      }),
    );
  });

  it('is cut into parts that keep the order, none above the bytes but one of a single row', () => {
    fc.assert(
      fc.property(fc.array(fc.nat(500), { maxLength: 30 }), fc.integer({ min: 1, max: 2000 }), (sizes, bytes) => {
        const all = sizes.map((size, at) => row(at, 'k', { value: Buffer.alloc(size) }));
        const parts = partsOf(all, bytes);
        expect(parts.flat()).toEqual(all);
        for (const part of parts) {
          const size = part.reduce((sum, { value }) => sum + value!.length + 100 + 1, 0);
          expect(part.length === 1 || size <= bytes).toBe(true);
        }
      }),
    );
  });
});

describe('blocks', () => {
  const from = (low: bigint) => Array.from({ length: 16 }, () => low);

  it('end one by one, and send back to where the lowest of their rows was met', () => {
    const blocks = new Blocks();
    blocks.block(row(10, 'a'), 100, from(9n));
    blocks.block(row(5, 'b'), 200, from(4n));
    expect(blocks.isBlocked(row(11, 'a'))).toBe(true);
    expect(blocks.isBlocked(row(11, 'c'))).toBe(false);
    expect([blocks.nextMs, blocks.floor?.[0], blocks.keys.length]).toEqual([100, 4n, 2]);
    expect(blocks.expire(99)).toBeUndefined();
    expect(blocks.expire(100)?.[0]).toBe(4n);
    expect([blocks.isBlocked(row(11, 'a')), blocks.isBlocked(row(11, 'b'))]).toEqual([false, true]);
    expect(blocks.expire(200)?.[0]).toBe(4n);
    expect(blocks.floor?.[0]).toBe(4n);
    blocks.settle();
    expect(blocks.floor).toBeUndefined();
  });

  it('of very many keys become one of their topic', () => {
    const blocks = new Blocks();
    for (let at = 0; at < 1500; at += 1) blocks.block(row(at, `k${at}`), 100, from(0n));
    expect([blocks.keys.length, blocks.topics]).toEqual([1000, ['t']]);
    expect(blocks.isBlocked(row(2000, 'other'))).toBe(true);
  });
});
