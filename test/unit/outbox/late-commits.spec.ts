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
