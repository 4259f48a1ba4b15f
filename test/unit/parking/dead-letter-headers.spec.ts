import { describe, expect, it } from 'vitest';
import { deadLetterHeaders, type DeadLetterFacts } from '#src/parking/dead-letter-headers.js';
import type { StoredRecord } from '#src/shared/parking.js';

const record: StoredRecord = {
  topic: 'orders',
  partition: 5,
  offset: 9223372036854775807n,
  timestamp: new Date('2026-11-29T10:00:00.123Z'),
  key: Buffer.from('k'),
  value: null,
  headers: [],
};

const facts: DeadLetterFacts = {
  consumer: 'billing.charge',
  groupId: 'billing',
  eventId: 'e1',
  reason: 'exhausted',
  error: { code: 'HANDLER_FAILED', name: 'TypeError', message: 'no' },
  stack: 'TypeError: no\n    at charge',
  attempts: 5,
  rounds: 4,
  replays: 0,
  firstFailedAt: new Date('2026-11-29T10:00:01Z'),
  lastFailedAt: new Date('2026-11-29T11:00:00Z'),
};

const texts = (headers: readonly (readonly [string, Buffer | null])[]) =>
  headers.map(([name, value]) => [name, value?.toString() ?? null]);

describe('the headers of a dead letter', () => {
  it('are the documented ones, each once, in their order', () => {
    expect(texts(deadLetterHeaders(record, facts, { brief: false }))).toEqual([
      ['dead-letter-version', '1'],
      ['dead-letter-consumer', 'billing.charge'],
      ['dead-letter-group', 'billing'],
      ['dead-letter-topic', 'orders'],
      ['dead-letter-partition', '5'],
      ['dead-letter-offset', '9223372036854775807'],
      ['dead-letter-timestamp', '2026-11-29T10:00:00.123Z'],
      ['dead-letter-event-id', 'e1'],
      ['dead-letter-reason', 'exhausted'],
      ['dead-letter-error-code', 'HANDLER_FAILED'],
      ['dead-letter-error-name', 'TypeError'],
      ['dead-letter-error-message', 'no'],
      ['dead-letter-error-stack', 'TypeError: no     at charge'],
      ['dead-letter-attempts', '5'],
      ['dead-letter-rounds', '4'],
      ['dead-letter-replays', '0'],
      ['dead-letter-first-failed-at', '2026-11-29T10:00:01.000Z'],
      ['dead-letter-last-failed-at', '2026-11-29T11:00:00.000Z'],
    ]);
  });

  it('leave out what is not known, and message and stack when they are to be brief', () => {
    const bare = { ...facts, eventId: undefined, error: undefined, firstFailedAt: null, lastFailedAt: null };
    const names = (brief: boolean, of = facts) =>
      deadLetterHeaders(record, of, { brief }).map(([name]) => name.slice('dead-letter-'.length));
    expect(names(false).filter((name) => !names(true).includes(name))).toEqual(['error-message', 'error-stack']);
    expect(names(true, bare)).toEqual(names(true).filter((name) => !/^error|^event-id|failed-at$/.test(name)));
  });

  it("come behind the record's own, which keep their bytes, their order, their repetitions and their nulls", () => {
    const own = [
      ['a', Buffer.from('00ff80', 'hex')],
      ['b', null],
      ['a', Buffer.alloc(0)],
      ['Dead-Letter-x', Buffer.from('x')],
      ['event-id', Buffer.from('e1')],
    ] as const;
    expect(deadLetterHeaders({ ...record, headers: own }, facts, { brief: false }).slice(0, 5)).toEqual(own);
  });

  it('S6: replace whatever dead-letter headers the record came with', () => {
    const forged = {
      ...record,
      headers: [
        ['dead-letter-topic', Buffer.from('evil')],
        ['dead-letter-x', null],
      ] as const,
    };
    expect(deadLetterHeaders(forged, facts, { brief: false })).toEqual(
      deadLetterHeaders(record, facts, { brief: false }),
    );
  });

  it('B40: keep their number and size over 50 rounds, but for the digits that count them', () => {
    let headers = deadLetterHeaders(record, facts, { brief: false });
    const sizes = new Set<string>();
    for (let replays = 1; replays <= 50; replays += 1) {
      headers = deadLetterHeaders({ ...record, headers }, { ...facts, replays }, { brief: false });
      expect(new Set(headers.map(([name]) => name)).size).toBe(headers.length);
      const bytes = headers.reduce((sum, [name, value]) => sum + name.length + (value?.length ?? 0), 0);
      sizes.add(`${headers.length} headers, ${bytes - String(replays).length} bytes`);
    }
    expect(sizes.size).toBe(1);
    expect(texts(headers)).toContainEqual(['dead-letter-replays', '50']);
  });

  it('B40: S10: bound message and stack in bytes, on one line, with no character cut in two', () => {
    const long = `first\r\nsecond\n${'é€😀'.repeat(2000)}`;
    const bounded = deadLetterHeaders(
      record,
      { ...facts, error: { ...facts.error!, message: long }, stack: long },
      { brief: false },
    );
    for (const [name, most] of [
      ['dead-letter-error-message', 1024],
      ['dead-letter-error-stack', 4096],
    ] as const) {
      const value = bounded.find(([found]) => found === name)![1]!;
      expect(value.length).toBeLessThanOrEqual(most);
      expect(value.length).toBeGreaterThan(most - 4);
      expect(value.toString()).toMatch(/^first second é€😀/);
      expect(value.toString()).not.toContain('\uFFFD');
    }
  });
});
