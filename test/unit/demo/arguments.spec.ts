import { describe, expect, it } from 'vitest';
import { readArguments } from '../../../sample/demo/arguments.js';

describe('readArguments', () => {
  it.each([
    [[], { events: 5_000, json: false }],
    [['--events', '500'], { events: 500, json: false }],
    [['--events=1', '--json'], { events: 1, json: true }],
    [['--json', '--events', '1000000'], { events: 1_000_000, json: true }],
  ])('reads %j', (args, options) => {
    expect(readArguments(args)).toEqual({ kind: 'run', options });
  });

  it.each([['--help'], ['-h']])('gives help for %s, whatever else is said', (flag) => {
    expect(readArguments(['--events', 'abc', flag])).toEqual({ kind: 'help' });
  });

  it.each(['abc', '0', '1.5', '1e3', '', ' 5', '1000001', '0x10', '99999999999999999999'])(
    'refuses --events=%j, naming what it got and what it wants',
    (events) => {
      const read = readArguments([`--events=${events}`]);
      expect(read).toMatchObject({ kind: 'wrong' });
      expect((read as { message: string }).message).toBe(
        `--events is ${JSON.stringify(events)}, but it has to be a whole number from 1 to 1000000. For example: npm run demo -- --events 500 --json`,
      );
    },
  );

  it.each([
    [['--event', '5'], /Unknown option '--event'/],
    [['500'], /Unexpected argument '500'/],
    [['--events'], /--events.*argument missing/],
    [['--events', '--json'], /--events.*ambiguous/],
    [['--json=yes'], /--json.*does not take an argument/],
  ])('refuses %j on one line with an example', (args, fault) => {
    const read = readArguments(args) as { kind: string; message: string };
    expect(read.kind).toBe('wrong');
    expect(read.message).toMatch(fault);
    expect(read.message).toMatch(/For example: npm run demo -- --events 500 --json$/);
    expect(read.message).not.toContain('\n');
  });
});
