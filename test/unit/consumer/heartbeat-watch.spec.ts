import { expect, test } from 'vitest';
import { HeartbeatWatch } from '#src/consumer/heartbeat-watch.js';

const SESSIONS = { sessionTimeout: 10_000, rebalanceTimeout: 60_000 };

function joinedWatch(): HeartbeatWatch {
  const watch = new HeartbeatWatch(SESSIONS, 0);
  watch.joined(0);
  return watch;
}

test('most of a session without an answered heartbeat is stale, and the next one ends it', () => {
  const watch = joinedWatch();
  expect([watch.isStale(8000), watch.isStale(8001)]).toEqual([false, true]);
  expect(watch.answered(9000)).toEqual({ wasStale: true, wentOn: false });
  expect(watch.isStale(9001)).toBe(false);
});

test('a rebalance that ends with a heartbeat instead of a join is told, once', () => {
  const watch = joinedWatch();
  watch.rebalancing();
  expect(watch.answered(1000)).toEqual({ wasStale: false, wentOn: true });
  expect(watch.answered(2000)).toEqual({ wasStale: false, wentOn: false });
});

test('a rebalance that ends with a join is nothing to tell', () => {
  const watch = joinedWatch();
  watch.rebalancing();
  watch.joined(1000);
  expect(watch.answered(2000)).toEqual({ wasStale: false, wentOn: false });
});

test('half a session of silence behind the first sight of it is the end of a client', () => {
  const watch = joinedWatch();
  expect([8001, 13_001, 13_002].map((now) => watch.isLost(now))).toEqual([false, false, true]);
});

test('a process that was frozen itself does not blame the brokers', () => {
  const watch = joinedWatch();
  expect(watch.isLost(500_000)).toBe(false);
  expect(watch.isLost(504_000)).toBe(false);
  watch.answered(504_500);
  expect(watch.isLost(600_000)).toBe(false);
});

test('a join may take as long as the slowest member', () => {
  const watch = joinedWatch();
  watch.rebalancing();
  expect([8001, 70_000, 78_001, 78_002].map((now) => watch.isLost(now))).toEqual([false, false, false, true]);
});
