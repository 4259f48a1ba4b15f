import { expect, test } from 'vitest';
import { anchorOf, inRange, type AnchorFacts } from '#src/consumer/anchor.js';

const LANE = { committable: 40n, next: 60n, committed: 30n };
const FACTS: AnchorFacts = {
  lane: LANE,
  committed: 30n,
  bounds: { low: 0n, high: 100n },
  isSameMember: true,
  fromBeginning: true,
  offsetOutOfRange: 'earliest',
};
const at = (change: Partial<AnchorFacts>) => anchorOf({ ...FACTS, ...change });

test('a lane goes on where it is if nobody else can have worked on its partition', () => {
  expect(at({})).toEqual({ kind: 'keep' });
});

test.each([
  ['the member is another one', { isSameMember: false }, 30n],
  ['the group stands where this lane did not write', { committed: 35n }, 35n],
  ['the topic was made anew, and is shorter', { bounds: { low: 0n, high: 50n } }, 30n],
  [
    'what the lane has not finished is deleted',
    { bounds: { low: 30n, high: 100n }, lane: { ...LANE, committable: 20n } },
    30n,
  ],
])('but if %s, from the offset of the group', (_what, change, first) => {
  expect(at(change)).toEqual({ kind: 'open', first, gap: undefined });
});

test.each([
  [true, 7n],
  [false, 100n],
])('a group without an offset begins as fromBeginning %s says', (fromBeginning, first) => {
  const bounds = { low: 7n, high: 100n };
  expect(at({ lane: undefined, committed: undefined, bounds, fromBeginning })).toEqual({
    kind: 'open',
    first,
    gap: undefined,
  });
});

test('F46 offsets of the group that were deleted under us are told, and never skipped over', () => {
  expect(at({ committed: undefined, fromBeginning: false })).toEqual({
    kind: 'open',
    first: 0n,
    gap: { from: 30n, to: 0n },
  });
});

test.each([
  [
    'goes on behind what it has done, where that is there',
    { low: 30n, high: 100n },
    { kind: 'open', first: 40n, gap: undefined },
  ],
  [
    'says what is missing from there',
    { low: 50n, high: 100n },
    { kind: 'open', first: 50n, gap: { from: 40n, to: 50n } },
  ],
])('F45 a lane whose offset the client has written over %s', (_what, bounds, anchor) => {
  expect(at({ committed: -2n, bounds })).toEqual(anchor);
});

test.each([
  ['deleted before it was read', 5n, { low: 10n, high: 100n }],
  ['beyond the end', 200n, { low: 10n, high: 100n }],
  ['written over by the client', -2n, { low: 10n, high: 100n }],
])(
  'F45 an offset %s goes on at the first record, or stops, and says from where to where',
  (_what, committed, bounds) => {
    const gap = { from: committed, to: 10n };
    expect(at({ lane: undefined, committed, bounds })).toEqual({ kind: 'open', first: 10n, gap });
    expect(at({ lane: undefined, committed, bounds, offsetOutOfRange: 'fail' })).toEqual({
      kind: 'stop',
      at: committed,
      gap,
    });
  },
);

test.each([10n, 55n, 100n])('offset %s is in range, the end included', (offset) => {
  expect(inRange(offset, { low: 10n, high: 100n }, 'fail')).toEqual({ kind: 'open', first: offset, gap: undefined });
});
