import { expect, test } from 'vitest';
import { readArguments } from '../../bench/arguments.js';

const read = (...args: string[]) => readArguments(args, ['hand-message', 'ours-default']);

test('without arguments the whole table is measured in three rounds', () => {
  expect(read()).toEqual({
    kind: 'table',
    only: [],
    runs: 3,
    given: { events: 14_000, handlerMs: 0, duplicates: 0 },
    json: undefined,
  });
});

test('rows, duplicates, a slow handler, events and rounds can be given', () => {
  const args = [
    '--only',
    'ours-default',
    '--duplicates',
    '0.1',
    '--handler-ms',
    '5',
    '--events',
    '3000',
    '--runs',
    '1',
  ];
  expect(read(...args, '--json', 'file')).toEqual({
    kind: 'table',
    only: ['ours-default'],
    runs: 1,
    given: { events: 3000, handlerMs: 5, duplicates: 0.1 },
    json: 'file',
  });
});

test('a slow handler gets fewer events unless they are given', () => {
  expect(read('--handler-ms', '5')).toMatchObject({ given: { events: 4000 } });
});

test('growth goes through four sizes and both kinds of ids unless they are given', () => {
  expect(read('--growth')).toMatchObject({ kind: 'growth', rows: [0, 1e6, 1e7, 5e7], ids: ['v4', 'v7'] });
  expect(read('--growth', '--rows', '0,500', '--ids', 'v7')).toMatchObject({ rows: [0, 500], ids: ['v7'] });
});

test('memory has its own, smaller backlog', () => {
  expect(read('--memory')).toMatchObject({ kind: 'memory', given: { events: 300 } });
});

test('the outbox is measured with a backlog of a million unless it is given', () => {
  expect(read('--outbox')).toMatchObject({ kind: 'outbox', backlog: 1e6, given: { events: 500 } });
  expect(read('--outbox', '--backlog', '5000')).toMatchObject({ kind: 'outbox', backlog: 5000 });
});

test.each([
  [['--only', 'ours'], "--only is 'ours', but the rows are hand-message, ours-default"],
  [['--duplicates', '1'], "--duplicates is '1'"],
  [['--handler-ms', 'x'], "--handler-ms is 'x'"],
  [['--events', '10'], "--events is '10'"],
  [['--events', '99.5'], '--events'],
  [['--runs', '0'], "--runs is '0'"],
  [['--growth', '--rows', '0,,5'], "--rows is ''"],
  [['--growth', '--rows', '5,1'], 'can only grow'],
  [['--growth', '--ids', 'v1'], 'v4, v7'],
  [['--growth', '--duplicates', '0.1'], '--duplicates says nothing with --growth'],
  [['--memory', '--only=ours-default'], '--only says nothing with --memory'],
  [['--rows', '5'], '--rows says nothing here'],
  [['--growth', '--memory'], '--memory says nothing with --growth'],
  [['--backlog', '5000'], '--backlog says nothing here'],
  [['--outbox', '--backlog', '5'], '--backlog'],
  [['--loud'], '--loud'],
])('%j is refused with what is wrong', (args, told) => {
  expect(read(...args)).toMatchObject({ kind: 'wrong', message: expect.stringContaining(told) as string });
});
