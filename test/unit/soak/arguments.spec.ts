import { expect, test } from 'vitest';
import { readArguments } from '../../soak/arguments.js';

const read = (...args: string[]) => readArguments(args, () => 5);

test('minutes and seed have defaults', () => {
  expect(read()).toEqual({ kind: 'run', minutes: 10, seed: 5, mode: 'default', json: false, only: [] });
  expect(read('--minutes', '2', '--seed', '7', '--mode', 'batch', '--json', '--only', 'a', '--only', 'b')).toEqual({
    kind: 'run',
    minutes: 2,
    seed: 7,
    mode: 'batch',
    json: true,
    only: ['a', 'b'],
  });
  expect(read('--check', 'folder')).toEqual({ kind: 'check', folder: 'folder', json: false });
});

test.each([
  [['--minutes', 'x'], '--minutes is x'],
  [['--minutes', '0'], '--minutes is 0'],
  [['--seed', '-1'], '--seed'],
  [['--seed', '1.5'], '--seed is 1.5'],
  [['--mode', 'fast'], 'default, shared, keys, interleave, batch'],
  [['--loud'], '--loud'],
])('%j is refused with what is wrong', (args, told) => {
  expect(read(...args)).toMatchObject({ kind: 'wrong', message: expect.stringContaining(told) as string });
});
