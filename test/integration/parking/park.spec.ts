import { describe, expect, it } from 'vitest';
import { IdempotencyError, NonRetryableError } from '#src/shared/errors.js';
import { noteOf } from '#src/shared/failed-attempt.js';
import { rejection } from '../schema/own-schema.js';
import { record, request, useParking } from './kit.js';

const kit = useParking();

describe('parking an event', () => {
  it('F37: keeps the record byte for byte, with why it was parked', async () => {
    const bytes = Buffer.from('00ff80', 'hex');
    const poison = record(7, {
      key: Buffer.from('fffe01', 'hex'),
      value: bytes,
      headers: [
        ['a', bytes],
        ['a', null],
        ['b "c", \\ {}', Buffer.alloc(0)],
        ['NULL', Buffer.from('x')],
      ],
    });
    const error = new NonRetryableError('broken JSON');
    const state = await (
      await kit.owner()
    ).park(request(poison, { reason: 'permanent', error, failures: [noteOf(error, new Date(5))], attempts: 1 }));
    expect(state).toBe('dead');
    const [row] = await kit.rows();
    expect(row).toMatchObject({
      state: 'dead',
      consumer: 'billing.charge',
      groupId: 'billing',
      topic: 'orders',
      partition: 0,
      recordOffset: '7',
      recordTimestamp: poison.timestamp,
      eventId: 'e7',
      recordKey: poison.key,
      recordValue: bytes,
      headerNames: ['a', 'a', 'b "c", \\ {}', 'NULL'],
      headerValues: [bytes, null, Buffer.alloc(0), Buffer.from('x')],
      reason: 'permanent',
      errorCode: 'NON_RETRYABLE',
      errorName: 'IdempotencyError',
      attempts: 1,
      rounds: 0,
      firstFailedAt: new Date(5),
      lastFailedAt: new Date(5),
      dueAt: null,
    });
    expect(row!.history).toEqual([
      { at: new Date(5).toISOString(), code: 'NON_RETRYABLE', name: 'IdempotencyError', message: error.message },
    ]);
  });

  it('B08: keeps a null key, a null value, an empty value and no headers as they are', async () => {
    const owner = await kit.owner();
    await owner.park(request(record(1, { key: null, value: null, headers: [] })));
    await owner.park(request(record(2, { value: Buffer.alloc(0) })));
    expect(await kit.rows()).toMatchObject([
      { recordKey: null, recordValue: null, headerNames: [], headerValues: [], holdKey: null },
      { recordValue: Buffer.alloc(0) },
    ]);
  });

  it('never fails over what a record may hold: any time, a NUL in a header name, a key of any length', async () => {
    const owner = await kit.owner();
    for (const [offset, timestamp] of [NaN, -1, 8.64e15, -8.64e15].entries())
      await owner.park(request(record(offset, { timestamp: new Date(timestamp) })));
    await owner.park(
      request(record(9, { key: Buffer.alloc(300_000, 1), headers: [['a\0b', Buffer.from('\0')]] }), {
        eventId: undefined,
      }),
    );
    const rows = await kit.rows();
    expect(rows).toHaveLength(5);
    expect(rows[4]).toMatchObject({ headerNames: ['a\uFFFDb'], headerValues: [Buffer.from('\0')], eventId: null });
    expect(rows[4]!.holdKey).toHaveLength(32);
  });

  it('is scheduled by the clock of the database when it comes back by itself', async () => {
    const redelivery = { rounds: 2, delayMs: 60_000, factor: 6, maxDelayMs: 600_000, jitter: 'none' } as const;
    expect(await (await kit.owner()).park(request(record(1), { redelivery }))).toBe('scheduled');
    const [{ wait }] = (await kit.dataSource.query(
      'SELECT extract(epoch FROM due_at - parked_at)::float8 AS wait FROM parked_events',
    )) as [{ wait: number }];
    expect(wait).toBe(60);
  });

  it.each(['permanent', 'missing-id', 'decoding', 'process-death'] as const)(
    'is dead at once when no further attempt can help: %s',
    async (reason) => {
      expect(await (await kit.owner()).park(request(record(1), { reason }))).toBe('dead');
    },
  );

  it('keeps the newest 20 failed attempts', async () => {
    const failures = Array.from({ length: 25 }, (_, n) => noteOf(new Error(`try ${n}`), new Date(n)));
    await (await kit.owner()).park(request(record(1), { failures, attempts: 25 }));
    const [row] = await kit.rows();
    expect(row!.history.map(({ message }) => message)).toEqual(failures.slice(5).map(({ message }) => message));
    expect(row).toMatchObject({ firstFailedAt: new Date(0), lastFailedAt: new Date(24), attempts: 25 });
  });

  it('is not parked twice, also by two owners at once, and tells the state it has', async () => {
    const owners = await Promise.all([kit.owner(), kit.owner()]);
    await Promise.all(owners.map((owner) => owner.park(request(record(1)))));
    expect(await kit.rows()).toHaveLength(1);
    await kit.room().events.discard({ eventId: 'e1' }, { by: 'ann', why: 'test' });
    expect(await owners[0]!.park(request(record(1)))).toBe('discarded');
  });

  it('is parked again under its old offset when the topic was made anew', async () => {
    const owner = await kit.owner();
    await owner.park(request(record(1)));
    await owner.park(request(record(1, { timestamp: new Date(0) })));
    expect(await kit.rows()).toHaveLength(2);
  });

  it('F39: rejects with PARK_FAILED and its cause when the database refuses, and can be called again', async () => {
    const owner = await kit.owner();
    await kit.dataSource.query('ALTER TABLE parked_events RENAME TO away');
    const error = (await rejection(owner.park(request(record(1))))) as IdempotencyError;
    expect(IdempotencyError.is(error, 'PARK_FAILED')).toBe(true);
    expect(error.retryable).toBe(true);
    expect(IdempotencyError.is(error.cause, 'DATABASE_UNAVAILABLE')).toBe(true);
    await kit.dataSource.query('ALTER TABLE away RENAME TO parked_events');
    expect(await owner.park(request(record(1)))).toBe('scheduled');
  });
});

describe('the dead letter of an event', () => {
  const dead = (offset: number) =>
    request(record(offset), { redelivery: { ...request(record(0)).redelivery, rounds: 0 } });
  const useLetters = () => kit.owner(0, kit.room({ deadLetters: { publisher: kit.letters, stack: true } }));

  it('F37: is acknowledged before the row is written', async () => {
    const owner = await useLetters();
    let rowsThen: unknown;
    kit.letters.answer = async () => {
      rowsThen = await kit.rows();
      return 'sent' as const;
    };
    expect(await owner.park(dead(1))).toBe('dead');
    expect(rowsThen).toEqual([]);
    expect(kit.letters.letters).toHaveLength(1);
    expect(kit.letters.letters[0]).toMatchObject({ key: record(1).key, value: record(1).value });
  });

  it('B38: an event that comes back by itself has none yet', async () => {
    await (await useLetters()).park(request(record(1)));
    expect(kit.letters.letters).toEqual([]);
  });

  it('B38: F39: nothing is parked when the copy is not acknowledged; then one copy and one row', async () => {
    const owner = await useLetters();
    kit.letters.answer = () => {
      throw new Error('UNKNOWN_TOPIC_OR_PARTITION');
    };
    const error = await rejection(owner.park(dead(1)));
    expect(IdempotencyError.is(error, 'DEAD_LETTER_FAILED')).toBe(true);
    expect((error as IdempotencyError).retryable).toBe(true);
    expect(await kit.rows()).toEqual([]);
    kit.letters.answer = () => 'sent';
    await owner.park(dead(1));
    expect([kit.letters.letters.length, (await kit.rows()).length]).toEqual([1, 1]);
  });

  it('B38: there is one copy when the row could not be written at first', async () => {
    const owner = await useLetters();
    await kit.dataSource.query('ALTER TABLE parked_events RENAME TO away');
    expect(IdempotencyError.is(await rejection(owner.park(dead(1))), 'PARK_FAILED')).toBe(true);
    expect(kit.letters.letters).toHaveLength(1);
    await kit.dataSource.query('ALTER TABLE away RENAME TO parked_events');
    await owner.park(dead(1));
    expect(kit.letters.letters).toHaveLength(1);
    await owner.park(dead(2));
    expect(kit.letters.letters).toHaveLength(2);
  });

  it('B38: loses message and stack when it is too large with them, and the row alone has it when it is too large without', async () => {
    const owner = await useLetters();
    const names = () => kit.letters.letters.at(-1)!.headers.map(([name]) => name);
    await owner.park(dead(1));
    expect(names()).toEqual(expect.arrayContaining(['dead-letter-error-message', 'dead-letter-error-stack']));
    kit.letters.answer = ({ headers }) =>
      headers.some(([name]) => name === 'dead-letter-error-message') ? 'too-large' : 'sent';
    await owner.park(dead(2));
    expect(kit.letters.letters).toHaveLength(2);
    expect(names()).not.toEqual(expect.arrayContaining(['dead-letter-error-message']));
    expect(names()).not.toEqual(expect.arrayContaining(['dead-letter-error-stack']));
    kit.letters.answer = () => 'too-large';
    await owner.park(dead(3));
    expect(kit.letters.letters).toHaveLength(2);
    expect(await kit.rows()).toHaveLength(3);
  });
});
