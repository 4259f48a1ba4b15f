import { expect, test } from 'vitest';
import fc from 'fast-check';
import { OffsetLedger } from '#src/consumer/offset-ledger.js';

const HANDLED = { duplicate: false };
const DUPLICATE = { duplicate: true };

function ledgerOf(...offsets: bigint[]): OffsetLedger {
  const ledger = new OffsetLedger(offsets[0] ?? 0n, undefined);
  for (const offset of offsets) ledger.take(offset);
  return ledger;
}

test('B52 the offset to commit is the next one, beyond what a number can hold', () => {
  const ledger = ledgerOf(9007199254740993n);
  ledger.settle(9007199254740993n, HANDLED);
  expect(ledger.committable.toString()).toBe('9007199254740994');
  const small = ledgerOf(41n);
  small.settle(41n, HANDLED);
  expect(small.committable.toString()).toBe('42');
});

test('a record that is finished before its predecessor moves nothing until the predecessor is finished', () => {
  const ledger = ledgerOf(3n, 4n, 5n);
  ledger.settle(4n, HANDLED);
  ledger.settle(5n, HANDLED);
  expect(ledger.committable).toBe(3n);
  ledger.settle(3n, HANDLED);
  expect(ledger.committable).toBe(6n);
});

test('what is finished behind an unfinished record is still pending', () => {
  const ledger = ledgerOf(3n, 4n, 5n);
  ledger.settle(5n, HANDLED);
  ledger.settle(4n, HANDLED);
  expect(ledger.pending).toBe(3);
  ledger.settle(3n, HANDLED);
  expect(ledger.pending).toBe(0);
  expect(() => ledger.settle(4n, HANDLED)).toThrow(/without having been taken/);
});

test('in any order of settling, no offset from the lowest unfinished record on is ever committable', () => {
  fc.assert(
    fc.property(
      fc.uniqueArray(fc.bigInt(0n, 60n), { minLength: 1, maxLength: 20 }),
      fc.infiniteStream(fc.nat()),
      (found, random) => {
        const offsets = [...found].sort((a, b) => (a < b ? -1 : 1));
        const ledger = ledgerOf(...offsets);
        const unfinished = [...offsets];
        while (unfinished.length > 0) {
          const [settled] = unfinished.splice(random.next().value! % unfinished.length, 1);
          ledger.settle(settled!, HANDLED);
          expect(ledger.committable).toBe(unfinished[0] ?? offsets.at(-1)! + 1n);
        }
      },
    ),
  );
});

test('offsets without a record are covered once everything before them is finished', () => {
  const ledger = ledgerOf(0n);
  ledger.cover(10n);
  expect(ledger.next).toBe(10n);
  expect(ledger.committable).toBe(0n);
  ledger.settle(0n, HANDLED);
  expect(ledger.committable).toBe(10n);
});

test('a skipped duplicate is committed only behind a barrier that began after it', () => {
  const ledger = ledgerOf(0n, 1n, 2n);
  ledger.settle(0n, HANDLED);
  ledger.settle(1n, DUPLICATE);
  expect(ledger).toMatchObject({ committable: 2n, secured: 1n, needsBarrier: true });
  ledger.beginBarrier();
  ledger.settle(2n, DUPLICATE); // too late for the barrier that is under way
  expect(ledger.secured).toBe(1n);
  ledger.endBarrier();
  expect(ledger).toMatchObject({ committable: 3n, secured: 2n, needsBarrier: true });
});

test('a barrier that failed secures nothing', () => {
  const ledger = ledgerOf(0n, 1n);
  ledger.settle(0n, DUPLICATE);
  ledger.beginBarrier();
  ledger.settle(1n, DUPLICATE);
  ledger.failBarrier();
  expect(ledger).toMatchObject({ secured: 0n, needsBarrier: true });
});

test('without a committed offset the first position itself has to be written', () => {
  const ledger = new OffsetLedger(7n, undefined);
  expect(ledger.needsCommit).toBe(true);
  ledger.commitAcknowledged(7n);
  expect(ledger.needsCommit).toBe(false);
});

test('settling what was never taken is a bug that shows', () => {
  expect(() => ledgerOf(1n).settle(2n, HANDLED)).toThrow('offset 2');
});
