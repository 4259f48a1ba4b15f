import { afterEach, beforeEach, expect, test, vi } from 'vitest';
import { Blocks } from '#src/outbox/blocks.js';
import type { OutboxRow } from '#src/outbox/outbox-row.js';
import type { OutboxRows, ReadRequest } from '#src/outbox/outbox-rows.js';
import { RowReader } from '#src/outbox/row-reader.js';

// Only the clock and what a read costs are made up: when it looks where.
beforeEach(() => void vi.useFakeTimers({ toFake: ['performance'] }));
afterEach(() => void vi.useRealTimers());

function reading(run = () => 'run 1') {
  let tookMs = 0;
  let isFull = false;
  let id = 0n;
  const starts: bigint[] = [];
  const rows = {
    read: ({ cursors }: ReadRequest) => {
      starts.push(cursors[0]!);
      vi.advanceTimersByTime(tookMs);
      const row = { id: (id += 1n), shard: 0, key: null, value: null } as OutboxRow;
      const moment = { snapshot: '10:10:', after: 11n };
      return Promise.resolve({ rows: [row], run: run(), moment, lookedBackTo: undefined, isFull });
    },
    snapshot: () => Promise.resolve({ xmin: 10n, xmax: 10n }),
  };
  const blocks = new Blocks();
  const reader = new RowReader({
    rows: rows as unknown as OutboxRows,
    blocks,
    shards: () => [0],
    deleted: () => Promise.resolve(),
    barrier: () => Promise.resolve(),
    batch: 10,
    pollMs: 1000,
  });
  /** Whether the read after that time begins at the first row. */
  const isFromStart = async (afterMs: number, readTakesMs = 0, isMuchLeft = false) => {
    vi.advanceTimersByTime(afterMs);
    [tookMs, isFull] = [readTakesMs, isMuchLeft];
    await reader.next();
    return starts.at(-1) === 0n;
  };
  return { reader, blocks, isFromStart };
}

test('every ten seconds it begins at the first row', async () => {
  const { isFromStart } = reading();
  expect(await isFromStart(0)).toBe(true);
  expect(await isFromStart(9_000)).toBe(false);
  expect(await isFromStart(1_001)).toBe(true);
  expect(await isFromStart(9_000)).toBe(false);
});

test('where that takes long it does so as much more rarely, but not for ever', async () => {
  const { isFromStart } = reading();
  expect(await isFromStart(0, 2_000)).toBe(true);
  expect(await isFromStart(39_000)).toBe(false);
  expect(await isFromStart(1_001, 60_000)).toBe(true);
  expect(await isFromStart(59_000)).toBe(false); // two minutes after it began
  expect(await isFromStart(1_001)).toBe(true);
  expect(await isFromStart(10_001)).toBe(true);
});

test('while a long backlog is read it does so every two minutes', async () => {
  const { isFromStart } = reading();
  expect(await isFromStart(0, 0, true)).toBe(true);
  for (let ms = 8_000; ms < 120_000; ms += 8_000) expect(await isFromStart(8_000, 0, true)).toBe(false);
  expect(await isFromStart(8_000, 0, true)).toBe(true);
});

test('or at once when it is asked to', async () => {
  const { reader, isFromStart } = reading();
  expect(await isFromStart(0, 2_000)).toBe(true);
  reader.lookAgain();
  expect(await isFromStart(0)).toBe(true);
});

test('a read in another run of the server counts for nothing, and nothing is blocked any more', async () => {
  let run = 'run 1';
  const { reader, blocks, isFromStart } = reading(() => run);
  await isFromStart(0);
  blocks.blockTopic('topic', Infinity, [7n]);
  run = 'run 2';
  await expect(reader.next()).rejects.toThrow('started again');
  expect(blocks.topics).toEqual([]);
  expect(blocks.floor).toBeUndefined();
  reader.startOver();
  expect(await isFromStart(0)).toBe(true);
});
