import { expect, test } from 'vitest';
import { LateCommits } from '#src/outbox/late-commits.js';

const at = (snapshot: string, after: bigint) => ({ snapshot, after });

test('rows of a transaction are above what had been read when it had not begun to write', () => {
  const late = new LateCommits();
  late.saw(at('10:12:10', 13n), [1n, 2n]);
  expect(late.open).toEqual([{ xid: '10', above: 0n }]); // it may have written before the first read
  late.saw(at('10:15:10,14', 16n), [3n, 9n]);
  expect(late.open).toEqual([
    { xid: '10', above: 0n },
    { xid: '14', above: 2n },
  ]);
  late.saw(at('14:20:14,17', 21n), []);
  expect(late.open).toEqual([
    { xid: '14', above: 2n },
    { xid: '17', above: 9n },
  ]);
  late.saw(at('22:22:', 23n), [7n]);
  expect(late.open).toEqual([]);
  late.saw(at('24:25:24', 26n), []);
  expect(late.open).toEqual([{ xid: '24', above: 9n }]); // what was read late changes nothing
});

test('a snapshot does not list the youngest: what was read beside them says nothing of their ids', () => {
  const late = new LateCommits();
  late.saw(at('10:10:', 11n), [1n]);
  late.saw(at('14:14:', 17n), [5n]); // 14 to 16 may be writing, and 15 may have drawn 4
  expect(late.unlisted).toEqual({ xid: '14', above: 1n });
  late.saw(at('15:19:15,18', 20n), [8n]);
  expect(late.open).toEqual([
    { xid: '15', above: 1n },
    { xid: '18', above: 5n },
  ]);
  expect(late.unlisted).toEqual({ xid: '19', above: 5n });
});

test('beside a transaction that stays open for ten thousand reads it still knows about where others began, and never takes them for later', () => {
  const late = new LateCommits();
  const count = 10_000;
  for (let read = 1; read <= count; read += 1) late.saw(at('10:20:10', 20n + BigInt(read)), [BigInt(read)]);
  for (const began of [3000, 7000, 9990]) {
    late.saw(at(`10:${20 + began}:10,${20 + began}`, 20n + BigInt(count)), []);
    const { above } = late.open.find(({ xid }) => xid === String(20 + began))!;
    expect(Number(above)).toBeLessThan(began); // it may have drawn any id after that read
    expect(Number(above)).toBeGreaterThan(began - 1 - count / 100);
  }
});
