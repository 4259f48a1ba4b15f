import { expect, test } from 'vitest';
import { hideAborted } from '#src/kafka/aborted-records.js';
import type { AbortedTransaction, FetchedMessage, FetchedPartition } from '#src/kafka/fetched-partitions.js';

const [ABORT, COMMIT] = [Buffer.from([0, 0, 0, 0]), Buffer.from([0, 0, 0, 1])];

/** `A`: a record of producer A in a transaction; `A-`: its abort; `A+`: its commit; `.`: a record outside of any. At the offsets from `from` on. */
function fetched(from: number, log: string, abortedTransactions: AbortedTransaction[], key?: Buffer): FetchedPartition {
  const messages = log.split(' ').map((word, at): FetchedMessage => {
    const end = word[1];
    return {
      offset: String(from + at),
      key: end === '-' ? ABORT : end === '+' ? COMMIT : (key ?? null),
      isControlRecord: end !== undefined,
      batchContext: { producerId: word === '.' ? '-1' : word[0]!, inTransaction: word !== '.' },
    };
  });
  return { partition: 0, highWatermark: '100', lastStableOffset: '100', abortedTransactions, messages };
}

function shown(partition: FetchedPartition): number[] {
  hideAborted(partition);
  return partition.messages.flatMap(({ offset, isControlRecord }) => (isControlRecord ? [] : [Number(offset)]));
}

const began = (producerId: string, firstOffset: number) => ({ producerId, firstOffset: String(firstOffset) });

test.each([
  ['nothing aborted', fetched(0, 'A . A+ B B+', []), [0, 1, 3]],
  ['one between others', fetched(0, '. A . A- .', [began('A', 1)]), [0, 2, 4]],
  ['listed as they ended, not as they began', fetched(0, 'A B A B- A A- .', [began('B', 1), began('A', 0)]), [6]],
  ['a fetch that begins inside of two', fetched(50, 'B A B B- A A- .', [began('A', 10), began('B', 20)]), [56]],
  ['a producer that commits after it has aborted', fetched(0, 'A A- A A+ A A-', [began('A', 0), began('A', 4)]), [2]],
  ['a key that looks like the mark of an abort', fetched(0, 'A A A A- A A+', [began('A', 0)], ABORT), [4]],
  ['the end of it not fetched yet', fetched(0, 'A . A', [began('A', 0)]), [1]],
])('hidden: %s', (_, partition, expected) => {
  expect(shown(partition)).toEqual(expected);
});

test('records from before transactions were known have no context, and are shown', () => {
  const partition = fetched(0, '. .', [began('A', 0)]);
  const old = { ...partition, messages: [{ offset: '0', key: null, isControlRecord: false }, ...partition.messages] };
  expect(shown(old)).toEqual([0, 0, 1]);
});
