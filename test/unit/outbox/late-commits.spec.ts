import { expect, test } from 'vitest';
import { LateCommits } from '#src/outbox/late-commits.js';

test('rows of a transaction that is writing are above what had been read before it was first seen', () => {
  const late = new LateCommits();
  late.saw('10:12:10', [1n, 2n]);
  expect(late.open).toEqual([{ xid: '10', above: 0n }]); // it may have written before the first read
  late.saw('10:15:10,13', [3n, 9n]);
  expect(late.open).toEqual([
    { xid: '10', above: 0n },
    { xid: '13', above: 2n },
  ]);
  late.saw('13:20:13,17', []);
  expect(late.open).toEqual([
    { xid: '13', above: 2n },
    { xid: '17', above: 9n },
  ]);
  late.saw('20:20:', [7n]);
  expect(late.open).toEqual([]);
  late.saw('20:21:20', []);
  expect(late.open).toEqual([{ xid: '20', above: 9n }]); // what was read late changes nothing
});
