import { expect, test } from 'vitest';
import { verdicts, type Invariant } from '../../soak/checker.js';
import type { Effect, Facts, Output } from '../../soak/facts.js';

const CONSUMERS = [
  { consumer: 'plain', topic: 't.plain' },
  { consumer: 'held', topic: 't.held' },
];

function outputOf({ consumer, id, key }: Effect): Output {
  return { eventId: `of-${consumer}/${id}`, key: `${consumer}/${key}`, consumer, id };
}

/** A run of four events of one key, the second sent twice, the third poison and replayed at the end. */
const GOOD: Facts = {
  seed: 1,
  minutes: 1,
  mode: 'default',
  faults: 1,
  byKind: { 'worker-kill': 1 },
  consumers: CONSUMERS,
  hasParking: true,
  sends: ['a', 'b', 'b', 'poison', 'c'].map((id) => ({
    topic: 't.plain',
    id,
    isPoison: id === 'poison',
    answer: id === 'c' ? ('unknown' as const) : ('acknowledged' as const),
  })),
  log: ['a', 'b', 'b', 'poison', 'c'].map((id, offset) => ({ topic: 't.plain', partition: 0, offset, id, key: 'k' })),
  effects: ['a', 'b', 'c', 'poison'].map((id) => ({ consumer: 'plain', id, key: 'k' })),
  balances: [{ consumer: 'plain', key: 'k', amount: 4 }],
  processed: ['a', 'b', 'c', 'poison'].map((id) => ({ consumer: 'plain', id })),
  parked: [{ consumer: 'plain', id: 'poison', state: 'dead' }],
  early: [],
  leftParked: [],
  outputs: ['a', 'b', 'b', 'c', 'poison'].map((id) => outputOf({ consumer: 'plain', id, key: 'k' })),
  imports: {
    inputs: ['1', '2'],
    kills: 2,
    messages: ['1', '2', '1', '2'].map((input) => ({ eventId: `of-${input}`, input })),
  },
  leftInOutbox: 0,
  committed: [{ topic: 't.plain', partition: 0, offset: 5 }],
  passed: [],
  recoveries: [{ fault: 'worker-kill', at: 1_000, ms: 2_000, boundMs: 3_000 }],
  lag: 0,
  lost: [],
};

function broken(change: Partial<Facts>): Invariant[] {
  const outputs = change.effects?.map(outputOf) ?? GOOD.outputs;
  return verdicts({ ...GOOD, outputs, ...change }).flatMap(({ invariant, verdict }) =>
    verdict === 'broken' ? [invariant] : [],
  );
}

const without = <T extends { readonly id: string }>(list: readonly T[], id: string): T[] =>
  list.filter((one) => one.id !== id);

test('a good run holds, and says what was not tried', () => {
  expect(broken({})).toEqual([]);
  expect(verdicts(GOOD).every(({ verdict }) => verdict === 'held')).toBe(true);
  const silent = verdicts({ ...GOOD, outputs: undefined });
  expect(silent.find(({ verdict }) => verdict === 'not tried')?.invariant).toBe('I5');
});

test('a send without an answer may be in the topic or not', () => {
  expect(
    broken({
      log: without(GOOD.log, 'c'),
      effects: without(GOOD.effects, 'c'),
      processed: without(GOOD.processed, 'c'),
      balances: [{ consumer: 'plain', key: 'k', amount: 3 }],
    }),
  ).toEqual([]);
});

test('a lost event', () => {
  expect(
    broken({
      effects: without(GOOD.effects, 'b'),
      processed: without(GOOD.processed, 'b'),
      balances: [{ consumer: 'plain', key: 'k', amount: 3 }],
    }),
  ).toEqual(['I1', 'I3', 'I7']);
});

test('a doubled effect', () => {
  expect(
    broken({
      effects: [GOOD.effects[0]!, ...GOOD.effects],
      balances: [{ consumer: 'plain', key: 'k', amount: 5 }],
    }),
  ).toEqual(['I1']);
});

test('an effect that nobody sent', () => {
  const ghost = { consumer: 'plain', id: 'ghost', key: 'other' };
  expect(broken({ effects: [...GOOD.effects, ghost] })).toEqual(['I1', 'I2']);
});

test('a balance that does not fit', () => {
  expect(broken({ balances: [{ consumer: 'plain', key: 'k', amount: 5 }] })).toEqual(['I1']);
});

test('poison that was parked twice, never, or ran before it was mended', () => {
  expect(broken({ parked: [...GOOD.parked, ...GOOD.parked] })).toEqual(['I1']);
  expect(broken({ parked: [] })).toEqual(['I1']);
  expect(broken({ early: ['poison'] })).toEqual(['I1']);
});

test('a claim without an effect, and an effect without a claim', () => {
  expect(broken({ processed: [...GOOD.processed, { consumer: 'plain', id: 'x' }] })).toEqual(['I2']);
  expect(broken({ processed: without(GOOD.processed, 'a') })).toEqual(['I2']);
});

test('an offset that passed an unfinished record during the run', () => {
  expect(broken({ passed: [{ topic: 't.plain', partition: 0, offset: 1, id: 'b' }] })).toEqual(['I3']);
});

test('an acknowledged record that is in no topic', () => {
  const sends = [...GOOD.sends, { topic: 't.held', id: 'gone', isPoison: false, answer: 'acknowledged' as const }];
  expect(broken({ sends })).toEqual(['I1']);
});

test('two events of a key in the wrong order; replayed poison without a held key leaves it', () => {
  const [a, b, ...rest] = GOOD.effects;
  expect(broken({ effects: [b!, a!, ...rest] })).toEqual(['I4']);
  const asHeld = <T extends { readonly consumer: string }>(rows: readonly T[]): T[] =>
    rows.map((row) => ({ ...row, consumer: 'held' }));
  expect(
    broken({
      sends: GOOD.sends.map((send) => ({ ...send, topic: 't.held' })),
      log: GOOD.log.map((record) => ({ ...record, topic: 't.held' })),
      effects: asHeld(GOOD.effects),
      processed: asHeld(GOOD.processed),
      balances: asHeld(GOOD.balances),
      parked: asHeld(GOOD.parked),
    }),
  ).toEqual(['I4']);
});

test('a recovery too late or never, records left at the end, and a worker that ended by itself', () => {
  const fault = { fault: 'worker-kill', at: 1_000, boundMs: 3_000 };
  expect(broken({ recoveries: [{ ...fault, ms: 3_001 }] })).toEqual(['I6']);
  expect(broken({ recoveries: [fault] })).toEqual(['I6']);
  expect(broken({ lag: 1 })).toEqual(['I6']);
  expect(broken({ lost: ['exit code 1'] })).toEqual(['I6']);
});

test('a parked record that is left is not lost, and not done', () => {
  expect(
    broken({
      effects: without(GOOD.effects, 'poison'),
      processed: without(GOOD.processed, 'poison'),
      balances: [{ consumer: 'plain', key: 'k', amount: 3 }],
      leftParked: GOOD.parked,
    }),
  ).toEqual(['I1']);
});

test('I5 breaks when an input of the job is missing, out of order, or there under two ids', () => {
  const imported = (...messages: [eventId: string, input: string][]) =>
    broken({
      imports: { inputs: ['1', '2'], kills: 2, messages: messages.map(([eventId, input]) => ({ eventId, input })) },
    });
  expect(imported(['a', '1'], ['b', '2'], ['a', '1'])).toEqual([]);
  expect(imported(['a', '1'])).toEqual(['I5']);
  expect(imported(['b', '2'], ['a', '1'])).toEqual(['I5']);
  expect(imported(['a', '1'], ['b', '2'], ['c', '2'])).toEqual(['I5']);
});

test('an effect of which nothing was sent, something else was, or that twice; a row that is left; and the order of a key', () => {
  const [a, b, ...rest] = GOOD.outputs!;
  expect(broken({ outputs: [b!, ...rest] })).toEqual(['I5']);
  expect(broken({ outputs: [...GOOD.outputs!, outputOf({ consumer: 'plain', id: 'ghost', key: 'k' })] })).toEqual([
    'I5',
  ]);
  expect(broken({ outputs: [...GOOD.outputs!, { ...b!, eventId: 'another' }] })).toEqual(['I5']);
  expect(broken({ outputs: [...GOOD.outputs!, a!, b!] })).toEqual([]);
  expect(broken({ outputs: [b!, a!, ...rest] })).toEqual(['I5']);
  expect(broken({ leftInOutbox: 1 })).toEqual(['I5']);
});
