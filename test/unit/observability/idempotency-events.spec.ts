import { subscribe, unsubscribe } from 'node:diagnostics_channel';
import { expect, test } from 'vitest';
import { IdempotencyEvents } from '#src/observability/idempotency-events.js';
import { emitAt, type EventPlace } from '#src/shared/events.js';

const place: EventPlace = { topic: 't', partition: 0, offset: '1', consumer: 'c', eventId: 'e', attempt: 1 };

/** A place that tells whether somebody has looked at it. */
function watched(): { readonly place: EventPlace; readonly isRead: () => boolean } {
  let isRead = false;
  const reading = new Proxy(place, { get: (target, key) => ((isRead = true), Reflect.get(target, key) as unknown) });
  return { place: reading, isRead: () => isRead };
}

test('an event that nobody listens to is not made', () => {
  const { emit } = new IdempotencyEvents();
  const { place: unread, isRead } = watched();
  emitAt(emit, 'claimed', unread);
  expect(isRead()).toBe(false);
});

test('a subscriber of the Observable gets every event, also one that comes late', () => {
  const events = new IdempotencyEvents();
  emitAt(events.emit, 'claimed', place);
  const got: unknown[] = [];
  const subscription = events.events$.subscribe((event) => got.push(event));
  emitAt(events.emit, 'handled', place);
  subscription.unsubscribe();
  emitAt(events.emit, 'processed', place);
  expect(got).toEqual([{ name: 'handled', ...place }]);
});

test('a subscriber of a channel gets the events of its name', () => {
  const { emit } = new IdempotencyEvents();
  const got: unknown[] = [];
  const listen = (event: unknown) => void got.push(event);
  subscribe('nestjs-kafka-idempotency:claimed', listen);
  emitAt(emit, 'claimed', place);
  emitAt(emit, 'handled', place);
  unsubscribe('nestjs-kafka-idempotency:claimed', listen);
  expect(got).toEqual([{ name: 'claimed', ...place }]);
});
