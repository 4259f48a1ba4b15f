import { expect, test } from 'vitest';
import fc from 'fast-check';
import { OffsetLedger } from '#src/consumer/offset-ledger.js';

const HANDLED = { durable: true };
/** A skipped duplicate, or `durability: 'window'`. */
const UNSURE = { durable: false };

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

test('what may not be on disk yet is committed only behind a barrier that began after it', () => {
  const ledger = ledgerOf(0n, 1n, 2n);
  ledger.settle(0n, HANDLED);
  ledger.settle(1n, UNSURE);
  expect(ledger).toMatchObject({ committable: 2n, secured: 1n, needsBarrier: true });
  ledger.beginBarrier();
  ledger.settle(2n, UNSURE); // too late for the barrier that is under way
  expect(ledger.secured).toBe(1n);
  ledger.endBarrier();
  expect(ledger).toMatchObject({ committable: 3n, secured: 2n, needsBarrier: true });
});

test('while anything settled may not be on disk the ledger says so, in whatever order records end', () => {
  const ledger = ledgerOf(0n, 1n, 2n);
  ledger.settle(2n, UNSURE); // nothing may be committed yet, so no barrier is needed yet
  expect(ledger).toMatchObject({ isDurable: false, needsBarrier: false });
  ledger.settle(0n, HANDLED);
  ledger.settle(1n, HANDLED);
  expect(ledger).toMatchObject({ secured: 2n, needsBarrier: true });
  ledger.beginBarrier();
  expect(ledger).toMatchObject({ isDurable: false, secured: 2n });
  ledger.endBarrier();
  expect(ledger).toMatchObject({ isDurable: true, secured: 3n, needsBarrier: false });
});

test('whatever settles and whatever barriers do, secured covers nothing that no finished barrier began behind', () => {
  const step = fc.oneof(
    fc.record({ settle: fc.nat(), durable: fc.boolean() }),
    fc.constantFrom('begin' as const, 'end' as const, 'fail' as const),
  );
  fc.assert(
    fc.property(fc.array(step, { maxLength: 60 }), (steps) => {
      const offsets = Array.from({ length: 20 }, (_, at) => BigInt(at));
      const ledger = ledgerOf(...offsets);
      const unfinished = [...offsets];
      const unsure = new Set<bigint>();
      let underWay: bigint[] | undefined;
      for (const one of steps) {
        if (typeof one === 'object') {
          const [offset] = unfinished.splice(one.settle % Math.max(1, unfinished.length), 1);
          if (offset === undefined) continue;
          ledger.settle(offset, one);
          if (!one.durable) unsure.add(offset);
        } else if (one === 'begin') {
          if (underWay !== undefined) continue;
          underWay = [...unsure];
          ledger.beginBarrier();
        } else if (underWay !== undefined) {
          if (one === 'end') for (const offset of underWay) unsure.delete(offset);
          underWay = undefined;
          if (one === 'end') ledger.endBarrier();
          else ledger.failBarrier();
        }
        expect([...unsure].every((offset) => offset >= ledger.secured)).toBe(true);
        expect(ledger.secured <= ledger.committable).toBe(true);
        expect(ledger.isDurable).toBe(unsure.size === 0);
      }
    }),
  );
});

test('a barrier that failed secures nothing', () => {
  const ledger = ledgerOf(0n, 1n);
  ledger.settle(0n, UNSURE);
  ledger.beginBarrier();
  ledger.settle(1n, UNSURE);
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

test('F24 a doubt holds for everything that was not finished, until a barrier that began after it', () => {
  const ledger = ledgerOf(0n, 1n, 2n);
  ledger.settle(0n, HANDLED);
  ledger.doubt();
  expect(ledger).toMatchObject({ secured: 1n, needsBarrier: false, isDurable: false });
  ledger.settle(1n, HANDLED);
  expect(ledger).toMatchObject({ committable: 2n, secured: 1n, needsBarrier: true });
  ledger.beginBarrier();
  ledger.doubt(); // beside the barrier, which fails for it
  ledger.failBarrier();
  ledger.settle(2n, HANDLED);
  expect(ledger).toMatchObject({ committable: 3n, secured: 1n });
  ledger.beginBarrier();
  ledger.endBarrier();
  expect(ledger).toMatchObject({ secured: 3n, isDurable: true });
});
