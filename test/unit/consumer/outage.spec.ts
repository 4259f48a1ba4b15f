import { afterEach, beforeEach, expect, test, vi } from 'vitest';
import { Outage } from '#src/consumer/outage.js';
import { OutageNotice } from '#src/consumer/outage-notice.js';

beforeEach(() => void vi.useFakeTimers());
afterEach(() => void vi.useRealTimers());

function setting() {
  const told: string[] = [];
  const lane = () => ({ wake: vi.fn<() => void>() });
  const [one, other] = [lane(), lane()];
  const ready = [one, other];
  const outage = new Outage(new OutageNotice('DATABASE_UNAVAILABLE', ({ name }) => told.push(name)), {
    ready: () => ready,
    wakeAll: () => told.push('wake all'),
  });
  return { outage, told, ready, one, other };
}

test('one lost connection is no outage', () => {
  const { outage, told, other } = setting();
  outage.suffered('lost');
  outage.passed();
  outage.suffered('lost');
  expect(told).toEqual([]);
  expect(outage.admits(other)).toBe(true);
});

test('F19 the second in a row is: nothing begins but one probe each second, by turns', () => {
  const { outage, told, one, other } = setting();
  outage.suffered('lost');
  outage.suffered('lost');
  expect(told).toEqual(['outage']);
  expect([outage.admits(one), outage.admits(other)]).toEqual([false, false]);
  vi.advanceTimersByTime(1000);
  expect([outage.admits(one), outage.admits(other)]).toEqual([true, false]);
  expect(one.wake).toHaveBeenCalledOnce();
  outage.suffered('still');
  expect(outage.admits(one)).toBe(false);
  vi.advanceTimersByTime(1000);
  expect([outage.admits(one), outage.admits(other)]).toEqual([false, true]);
});

test('a probe that never begins or never ends keeps no other from its turn', () => {
  const { outage, other } = setting();
  outage.suffered('lost');
  outage.suffered('lost');
  vi.advanceTimersByTime(2000);
  expect(outage.admits(other)).toBe(true);
});

test('lanes that came after it began try too, also if those that suffered are gone', () => {
  const { outage, told, ready } = setting();
  outage.suffered('lost');
  outage.suffered('lost');
  const late = { wake: vi.fn<() => void>() };
  ready.splice(0, 2, late);
  vi.advanceTimersByTime(1000);
  expect(outage.admits(late)).toBe(true);
  outage.passed();
  expect(told).toEqual(['outage', 'recovered', 'wake all']);
});

test('it is over with the first delivery that reaches the database', () => {
  const { outage, told, one, other } = setting();
  outage.suffered('lost');
  outage.suffered('lost');
  outage.passed();
  expect(told).toEqual(['outage', 'recovered', 'wake all']);
  expect([outage.admits(one), outage.admits(other), outage.declared]).toEqual([true, true, undefined]);
  vi.advanceTimersByTime(5000);
  expect(one.wake).not.toHaveBeenCalled();
});

test('it is over when no lane has anything to deliver: nobody could find out any more', () => {
  const { outage, told, ready } = setting();
  outage.suffered('lost');
  outage.suffered('lost');
  ready.length = 0;
  expect(told).toEqual(['outage']);
  vi.advanceTimersByTime(1000);
  expect(told).toEqual(['outage', 'recovered', 'wake all']);
});
