import { describe, expect, it } from 'vitest';
import { ConsumedRecord } from '#src/consumer/consumed-record.js';
import { firstToBlame, runInterleaved, type FailedRecord } from '#src/consumer/interleaved-run.js';

const recordsOf = (keys: readonly (string | null)[]) =>
  keys.map((key, at) =>
    ConsumedRecord.from({
      topic: 't',
      partition: 0,
      offset: BigInt(at),
      timestamp: new Date(0),
      key: key === null ? null : Buffer.from(key),
      value: null,
      headers: [],
    }),
  );

/** A run whose records begin and end when the test says so. */
function start(keys: readonly (string | null)[], { atOnce = 2, size = keys.length } = {}) {
  const begun: number[] = [];
  const ends = new Map<number, (goesOn: boolean) => void>();
  const state = { isOver: false };
  let open = (): void => {};
  const opened = new Promise<void>((resolve) => (open = resolve));
  const run = (at: number) => {
    begun.push(at);
    return new Promise<boolean>((resolve) => ends.set(at, resolve));
  };
  const records = recordsOf(keys);
  const over = runInterleaved({
    records,
    keys: atOnce,
    run,
    opened,
    size: () => size,
  }).then(() => (state.isOver = true));
  const turn = () => new Promise((resolve) => setImmediate(resolve));
  const end = (at: number, goesOn = true) => {
    ends.get(at)!(goesOn);
    return turn();
  };
  return { begun, state, over, end, open: () => (open(), turn()) };
}

describe('which records of a group are at work', () => {
  it('the first alone, until it has opened the transaction; then so many keys at once, each in order', async () => {
    const run = start(['a', 'a', 'b', 'c', 'b']);
    expect(run.begun).toEqual([0]);
    await run.open();
    expect(run.begun).toEqual([0, 2]);
    await run.end(2);
    expect(run.begun).toEqual([0, 2, 3]);
    await run.end(3);
    expect(run.begun).toEqual([0, 2, 3, 4]);
    await run.end(0);
    expect(run.begun).toEqual([0, 2, 3, 4, 1]);
    expect(run.state.isOver).toBe(false);
    await run.end(1);
    await run.end(4);
    expect(run.state.isOver).toBe(true);
  });

  it('those without a key follow one another', async () => {
    const run = start([null, null, 'a'], { atOnce: 3 });
    await run.open();
    expect(run.begun).toEqual([0, 2]);
    await run.end(0);
    expect(run.begun).toEqual([0, 2, 1]);
  });

  it('those behind its size do not begin', async () => {
    const run = start(['a', 'b', 'c'], { atOnce: 3, size: 2 });
    await run.open();
    await run.end(0);
    await run.end(1);
    expect([run.begun, run.state.isOver]).toEqual([[0, 1], true]);
  });

  it('once one stops the others none begins, and it is over when what is at work has ended', async () => {
    const run = start(['a', 'b', 'c']);
    await run.open();
    await run.end(0, false);
    expect([run.begun, run.state.isOver]).toEqual([[0, 1], false]);
    await run.end(1);
    expect([run.begun, run.state.isOver]).toEqual([[0, 1], true]);
  });

  it('all is over with the first, if that stops before it has opened the transaction', async () => {
    const run = start(['a', 'b']);
    await run.end(0, false);
    expect(run.state.isOver).toBe(true);
    await run.open();
    expect(run.begun).toEqual([0]);
  });
});

describe('whose failure counts', () => {
  const failed = (at: number, more: object = {}): FailedRecord => ({
    at,
    report: { outcome: 'failed', error: new Error(`of ${at}`), ...more },
  });

  it('the first of those that failed by themselves', () => {
    const consequence = { isConsequence: true };
    expect(firstToBlame([failed(1, consequence), failed(5), failed(3), failed(2, consequence)])?.at).toBe(3);
  });

  it('an outage or a busy claim comes before', () => {
    expect(firstToBlame([failed(1), failed(4, { isOutage: true })])?.at).toBe(4);
    const busy: FailedRecord = { at: 4, report: { outcome: 'busy', error: undefined } };
    expect(firstToBlame([failed(1), busy])).toBe(busy);
  });

  it('nobody, if each failed only because of something else', () => {
    expect(firstToBlame([failed(1, { isConsequence: true })])).toBeUndefined();
  });
});
