import { afterEach, beforeEach, expect, test, vi } from 'vitest';
import { Outage } from '#src/consumer/outage.js';
import { OutageNotice } from '#src/consumer/outage-notice.js';

beforeEach(() => void vi.useFakeTimers());
afterEach(() => void vi.useRealTimers());

function setting() {
  const told: string[] = [];
  const outage = new Outage(new OutageNotice('DATABASE_UNAVAILABLE', ({ name }) => told.push(name)), () =>
    told.push('wake all'),
  );
  const lane = () => ({ wake: vi.fn<() => void>() });
  return { outage, told, one: lane(), other: lane() };
}

test('one lost connection is no outage', () => {
  const { outage, told, one, other } = setting();
  outage.suffered(one, 'lost');
  outage.passed();
  outage.suffered(other, 'lost');
  expect(told).toEqual([]);
  expect(outage.admits(other)).toBe(true);
});

test('F19 the second in a row is: nothing begins but one probe each second, by turns', () => {
  const { outage, told, one, other } = setting();
  outage.suffered(one, 'lost');
  outage.suffered(other, 'lost');
  expect(told).toEqual(['outage']);
  expect([outage.admits(one), outage.admits(other)]).toEqual([false, false]);
  vi.advanceTimersByTime(1000);
  expect([outage.admits(one), outage.admits(other)]).toEqual([true, false]);
  expect(one.wake).toHaveBeenCalledOnce();
  outage.suffered(one, 'still');
  expect(outage.admits(one)).toBe(false);
  vi.advanceTimersByTime(1000);
  expect([outage.admits(one), outage.admits(other)]).toEqual([false, true]);
});

test('a probe that never begins or never ends keeps no other from its turn', () => {
  const { outage, one, other } = setting();
  outage.suffered(one, 'lost');
  outage.suffered(other, 'lost');
  vi.advanceTimersByTime(2000);
  expect(outage.admits(other)).toBe(true);
});

test('it is over with the first delivery that reaches the database', () => {
  const { outage, told, one, other } = setting();
  outage.suffered(one, 'lost');
  outage.suffered(one, 'lost');
  outage.passed();
  expect(told).toEqual(['outage', 'recovered', 'wake all']);
  expect([outage.admits(one), outage.admits(other), outage.declared]).toEqual([true, true, undefined]);
  vi.advanceTimersByTime(5000);
  expect(one.wake).not.toHaveBeenCalled();
});

test('it is over when no lane is left that waits: nobody could find out any more', () => {
  const { outage, told, one, other } = setting();
  outage.suffered(one, 'lost');
  outage.suffered(other, 'lost');
  outage.left(one);
  expect(told).toEqual(['outage']);
  outage.left(other);
  expect(told).toEqual(['outage', 'recovered', 'wake all']);
});
