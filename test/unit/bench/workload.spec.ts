import { expect, test } from 'vitest';
import { CONTENDERS, AGAINST, workloadOf } from '../../bench/contenders.js';
import { newEventId } from '../../bench/event-ids.js';
import { Stopwatch } from '../../bench/stopwatch.js';
import { eventOf, eventsOfRecords } from '../../bench/workload.js';

const GIVEN = { events: 14_000, handlerMs: 0, duplicates: 0 };

test('ids are 36 characters; those of version 7 sort by their time', () => {
  expect(newEventId('v4', 0)).toMatch(/^[\da-f]{8}-[\da-f]{4}-4[\da-f]{3}-[89ab][\da-f]{3}-[\da-f]{12}$/);
  const id = newEventId('v7', 0x0192_3456_789a);
  expect(id).toMatch(/^01923456-789a-7[\da-f]{3}-[89ab][\da-f]{3}-[\da-f]{12}$/);
  expect(newEventId('v7', 0x0192_3456_789b) > id).toBe(true);
});

test('an event has the size that was asked for', () => {
  for (const bytes of [250, 1_000_000]) expect(eventOf(newEventId('v4', 0), bytes)).toHaveLength(bytes);
});

test('of ten records one repeats an event from well before', () => {
  const events = eventsOfRecords(10_000, 0.1);
  expect(new Set(events).size).toBe(9_000);
  expect(Math.max(...events)).toBe(8_999);
  expect(events.slice(9_980, 9_991)).toEqual([8982, 8983, 8984, 8985, 8986, 8987, 8988, 8989, 8990, 8491, 8991]);
});

test('without duplicates each record is an event of its own', () => {
  expect(eventsOfRecords(3, 0)).toEqual([0, 1, 2]);
});

test('every row is compared with a row there is, or said to be compared with none', () => {
  expect(Object.keys(AGAINST)).toEqual(Object.keys(CONTENDERS));
  const named = Object.values(AGAINST).filter((against) => against !== null);
  expect(named.filter((against) => !(against in CONTENDERS))).toEqual([]);
});

test('the rows of keys in parallel wait in their handler, on one partition, with a pool for the keys', () => {
  expect(workloadOf('ours-sequential', GIVEN)).toMatchObject({ partitions: 1, handlerMs: 5, pool: 8, records: 2000 });
  expect(workloadOf('ours-keys', GIVEN)).toMatchObject({ partitions: 1, handlerMs: 5, pool: 18, records: 14_000 });
});

test('what is fast gets more events, unless every handler waits', () => {
  expect(workloadOf('ours-batch', GIVEN).records).toBe(210_000);
  expect(workloadOf('ours-batch', { ...GIVEN, handlerMs: 5 })).toMatchObject({ records: 14_000, handlerMs: 5 });
});

test('the stopwatch leaves the warm-up out and stops at the last record', async () => {
  const watch = new Stopwatch(100, 40);
  watch.handled(30);
  watch.handled(15);
  watch.handled(55);
  expect((await watch.finished).timedEvents).toBe(55);
});
