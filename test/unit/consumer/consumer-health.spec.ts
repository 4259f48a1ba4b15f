import { expect, test } from 'vitest';
import type { ConsumingState } from '#src/consumer/consuming.js';
import { consumerHealth } from '#src/consumer/consumer-health.js';
import { IdempotencyError } from '#src/shared/errors.js';

const NOW = 1_000_000;

function laneOf(change: object = {}) {
  return {
    topic: 'orders',
    partition: 0,
    ledger: { committable: 5n, committed: 4n },
    queued: 3,
    isIdle: false,
    isWorking: false,
    lastActiveAt: NOW,
    retrying: undefined,
    stopped: undefined,
    since: new Date(),
    ...change,
  };
}

function healthOf(
  lane: object,
  change: { membership?: object; overdueMs?: number; outage?: object; paused?: boolean; trouble?: object } = {},
) {
  const membership = { lanes: [lane], isAnchored: true, isStale: false, ...change.membership };
  const state = {
    membership,
    subscribed: { topics: ['orders'], missing: [] },
    trouble: change.trouble,
    isEnding: false,
  };
  return consumerHealth({
    state: state as unknown as ConsumingState,
    listeningSince: new Date(),
    overdueMs: change.overdueMs ?? -Infinity,
    outage: change.outage as { since: Date; detail: string } | undefined,
    isPaused: () => change.paused ?? false,
    now: NOW,
  });
}

test('a consumer that works is live and ready, and tells where each partition stands', () => {
  const { live, ready, reasons, partitions } = healthOf(laneOf());
  expect({ live, ready, reasons }).toEqual({ live: true, ready: true, reasons: [] });
  expect(partitions).toMatchObject([{ position: '5', committed: '4', buffered: 3, state: 'running' }]);
});

test('a handler that runs for minutes, or waits for a slot, is no reason to restart the process', () => {
  expect(healthOf(laneOf({ isWorking: true, lastActiveAt: NOW - 300_000 }))).toMatchObject({ live: true, ready: true });
});

test('records that wait a minute while nothing begins are', () => {
  expect(healthOf(laneOf({ lastActiveAt: NOW - 61_000 }))).toMatchObject({ live: false, ready: false });
});

test('B28 an outage of the database: live however long it takes, not ready, with the reason', () => {
  const outage = { since: new Date(), detail: 'connect ECONNREFUSED' };
  const health = healthOf(laneOf({ lastActiveAt: NOW - 600_000 }), { outage });
  expect(health).toMatchObject({
    live: true,
    ready: false,
    reasons: [{ code: 'DATABASE_UNAVAILABLE', detail: 'connect ECONNREFUSED' }],
    partitions: [{ state: 'outage' }],
  });
});

test('B38 an event that cannot be parked keeps the others going, and is named', () => {
  const retrying = { since: new Date(), code: 'DEAD_LETTER_FAILED', detail: 'test cannot park orders[0]@5' };
  expect(healthOf(laneOf({ isWorking: true, retrying }))).toMatchObject({
    ready: true,
    reasons: [{ code: 'DEAD_LETTER_FAILED' }],
  });
});

test('offsets that cannot be read say why', () => {
  const trouble = { since: new Date(), error: new IdempotencyError('DATABASE_UNAVAILABLE', 'no connection') };
  expect(healthOf(laneOf(), { membership: { isAnchored: false, trouble } })).toMatchObject({
    ready: false,
    reasons: [{ code: 'DATABASE_UNAVAILABLE' }, { code: 'PARTITION_LOST' }],
  });
});

test('a paused topic may wait for ever', () => {
  const health = healthOf(laneOf({ lastActiveAt: NOW - 61_000 }), { paused: true });
  expect(health).toMatchObject({ live: true, ready: true, partitions: [{ state: 'paused' }] });
});

test('a handler that is tried again keeps the consumer ready, with the reason', () => {
  const retrying = { since: new Date(), code: 'HANDLER_RETRYING', detail: 'test failed on orders[0]@5' };
  const health = healthOf(laneOf({ isWorking: true, retrying }));
  expect(health).toMatchObject({
    live: true,
    ready: true,
    reasons: [{ code: 'HANDLER_RETRYING' }],
    partitions: [{ state: 'retrying' }],
  });
});

test.each([
  ['a stopped partition', laneOf({ stopped: new IdempotencyError('NO_HANDLER', 'none') }), {}, 'NO_HANDLER'],
  ['offsets that are still being read', laneOf(), { membership: { isAnchored: false } }, 'PARTITION_LOST'],
  ['heartbeats that are not answered', laneOf(), { membership: { isStale: true } }, 'BROKER_UNAVAILABLE'],
  ['a crashed client', laneOf(), { trouble: { error: new Error('gone'), since: new Date() } }, 'CONSUMER_CRASHED'],
] as const)('%s: live, but not ready', (_what, lane, change, code) => {
  const { live, ready, reasons } = healthOf(lane, change);
  expect({ live, ready, codes: reasons.map((reason) => reason.code) }).toEqual({
    live: true,
    ready: false,
    codes: [code],
  });
});

test('a handler ten seconds past its timeout cannot be helped from inside', () => {
  expect(healthOf(laneOf(), { overdueMs: 10_001 })).toMatchObject({
    live: false,
    reasons: [{ code: 'HANDLER_TIMEOUT' }],
  });
});

test('before the transport has started the consumer is live, and says why it is not ready', () => {
  const health = consumerHealth({
    state: undefined,
    listeningSince: undefined,
    overdueMs: -Infinity,
    outage: undefined,
    isPaused: () => false,
    now: NOW,
  });
  expect(health).toMatchObject({ live: true, ready: false, reasons: [{ code: 'TRANSPORT_MISSING' }], partitions: [] });
});
