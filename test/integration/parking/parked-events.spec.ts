import { describe, expect, it } from 'vitest';
import { IdempotencyError } from '#src/shared/errors.js';
import type { ParkedFilter } from '#src/parking/parked-filter.js';
import { BACKOFF, CONSUMER, ConsumerDouble, failing, gated, record, request, useParking } from './kit.js';
import { rejection } from '../schema/own-schema.js';

const kit = useParking();
const ann = { by: 'ann' };
const because = { by: 'ann', why: 'sent twice by the shop' };
const later = { ...BACKOFF, delayMs: 3_600_000, maxDelayMs: 3_600_000, rounds: 4 };
const none = { processed: 0, duplicate: 0, stale: 0, failed: 0, busy: 0, unknown: 0, behind: 0 };
const codeOf = async (promise: Promise<unknown>) => ((await rejection(promise)) as IdempotencyError).code;
/** Parks dead events, each of a key of its own unless one is given. */
const parkDead = async (...offsets: number[]) => {
  const owner = await kit.owner();
  for (const offset of offsets)
    await owner.park(request(record(offset, { key: Buffer.from(`k${offset}`) }), { reason: 'permanent' }));
};
/** One dead event and what is held behind it. */
const parkKey = async (dead: number, ...held: number[]) => {
  const owner = await kit.owner();
  await owner.park(request(record(dead), { reason: 'permanent' }));
  for (const offset of held) await owner.gate(gated(record(offset)));
};
/** A room that replays and has no worker of its own at it. */
const replaying = (consumer = new ConsumerDouble(kit.dataSource)) => {
  const room = kit.room({ pollMs: 3_600_000, tidyMs: 3_600_000 });
  room.start(consumer);
  return room.events;
};
const histories = async () => (await kit.rows()).map(({ history }) => history);

describe('reading', () => {
  it('gives an event with its bytes, in camel case', async () => {
    await parkDead(1);
    const [listed] = await kit.room().events.list({});
    expect(listed).toMatchObject({
      id: expect.stringMatching(/^\d+$/) as string,
      state: 'dead',
      recordOffset: '1',
      recordKey: Buffer.from('k1'),
      recordValue: Buffer.from('value 1'),
      headers: [['event-id', Buffer.from('e1')]],
      reason: 'permanent',
      parkedAt: expect.any(Date) as Date,
      version: 1,
    });
    expect(await kit.room().events.get(listed!.id)).toEqual(listed);
  });

  it('goes through pages in the order of parking, each event once', async () => {
    await parkDead(5, 4, 3, 2, 1);
    const { events } = kit.room();
    const seen: string[] = [];
    for (let after = '0'; ;) {
      const page = await events.list({}, { after, limit: 2 });
      if (page.length === 0) break;
      seen.push(...page.map(({ recordOffset }) => recordOffset));
      after = page.at(-1)!.id;
    }
    expect(seen).toEqual(['5', '4', '3', '2', '1']);
  });

  it('counts by state', async () => {
    await parkKey(1, 2, 3);
    await parkDead(4);
    await (await kit.owner()).park(request(record(5, { key: null }), { redelivery: later }));
    const { events } = kit.room();
    await events.discard({ eventId: 'e4' }, because);
    expect(await events.count()).toEqual({ scheduled: 1, dead: 1, held: 2, discarded: 1 });
  });

  it.each([
    [{ ids: [] }, []],
    [{ state: 'dead' }, ['1', '4']],
    [{ state: 'held', topic: 'orders' }, ['2']],
    [{ consumer: 'audit' }, ['6']],
    [{ topic: 'returns' }, []],
    [{ eventId: 'e4' }, ['4']],
    [{ errorCode: 'HANDLER_FAILED' }, ['1', '4', '6']],
    [{ errorCode: 'HANDLER_TIMEOUT' }, []],
    [{ since: new Date(Date.now() + 3_600_000) }, []],
    [{ until: new Date(Date.now() + 3_600_000) }, ['1', '2', '4', '6']],
  ] as [ParkedFilter, string[]][])('finds by %o', async (filter, offsets) => {
    await parkKey(1, 2);
    await parkDead(4);
    await (await kit.owner()).park(request(record(6), { consumer: 'audit' }));
    expect((await kit.room().events.list(filter)).map(({ recordOffset }) => recordOffset)).toEqual(offsets);
  });

  it('says PARKED_NOT_FOUND for an event that is not there, and for what is no id', async () => {
    for (const id of ['1', 'x', '99999999999999999999', "1'; DROP TABLE parked_events; --"])
      expect(await codeOf(kit.room().events.get(id))).toBe('PARKED_NOT_FOUND');
  });
});

describe('an argument that cannot be meant', () => {
  it('is an empty filter for what changes rows: nothing happens to everything by accident', async () => {
    await parkDead(1);
    const events = replaying();
    for (const filter of [{}, { topic: undefined }] as ParkedFilter[]) {
      expect(await codeOf(events.replay(filter, ann))).toBe('OPTIONS_INVALID');
      expect(await codeOf(events.discard(filter, because))).toBe('OPTIONS_INVALID');
    }
    expect(await events.list({})).toMatchObject([{ state: 'dead', version: 1 }]);
  });

  it.each([
    ['a field the filter does not know', (events) => events.discard({ topics: 'orders' } as ParkedFilter, because)],
    ['an id that is none', (events) => events.list({ ids: ['1', 'x'] })],
    ['a limit out of range', (events) => events.list({}, { limit: 1001 })],
    ['nobody who does it', (events) => events.replay({ state: 'dead' }, { by: ' ' })],
    ['no reason', (events) => events.discard({ state: 'dead' }, { by: 'ann', why: '' })],
    ['an edit of nothing', (events) => events.edit('1', { version: 1, by: 'ann' })],
  ] as [string, (events: ReturnType<typeof replaying>) => Promise<unknown>][])('is %s', async (_, call) => {
    expect(await codeOf(call(replaying()))).toBe('OPTIONS_INVALID');
  });
});

describe('a replay', () => {
  it('F40: runs an event that never succeeded, under its old id, and its row goes with the effect', async () => {
    await parkDead(1);
    expect(await replaying().replay({ state: 'dead' }, ann)).toEqual({ ...none, processed: 1 });
    expect([await kit.effects(), await kit.rows()]).toEqual([['e1'], []]);
    expect(kit.events).toMatchObject([
      { name: 'replayed', by: 'ann', outcome: 'processed', eventId: 'e1', offset: '1' },
    ]);
  });

  it('F40: skips one that did succeed: its row goes and the handler is not run', async () => {
    await parkDead(1);
    await kit.dataSource.query(
      `INSERT INTO processed_events (consumer, event_id, topic, partition, record_offset, fingerprint) VALUES ($1, 'e1', 'orders', 0, 1, 0)`,
      [CONSUMER],
    );
    expect(await replaying().replay({ state: 'dead' }, ann)).toEqual({ ...none, duplicate: 1 });
    expect([await kit.effects(), await kit.rows()]).toEqual([[], []]);
  });

  it('takes events in the order of their partition and offset, whatever the order of parking', async () => {
    await parkDead(3, 1, 2);
    await replaying().replay({ state: 'dead' }, ann);
    expect(await kit.effects()).toEqual(['e1', 'e2', 'e3']);
  });

  it('of a key takes the held ones behind it along in their order', async () => {
    await parkKey(1, 2, 3);
    expect(await replaying().replay({ topic: 'orders' }, ann)).toEqual({ ...none, processed: 3 });
    expect(await kit.effects()).toEqual(['e1', 'e2', 'e3']);
  });

  it('does not run one behind an earlier event of its key', async () => {
    await parkKey(1, 2, 3);
    const failFirst = new ConsumerDouble(kit.dataSource, ({ eventId }) =>
      eventId === 'e1' ? failing('permanent') : 'run',
    );
    const before = await kit.rows();
    expect(await replaying(failFirst).replay({ state: 'held' }, ann)).toEqual({ ...none, behind: 2 });
    expect(await kit.rows()).toEqual(before);
    expect(await replaying(failFirst).replay({ topic: 'orders' }, ann)).toEqual({ ...none, failed: 1, behind: 2 });
    expect(await kit.effects()).toEqual([]);
  });

  it('releases the held event behind the one that was handled', async () => {
    await parkKey(1, 2);
    await replaying().replay({ state: 'dead' }, ann);
    await expect.poll(() => kit.effects(), { timeout: 10_000 }).toEqual(['e1', 'e2']);
  });

  it.each(['permanent', 'transient', 'infrastructure'] as const)(
    'that fails (%s) leaves the event as it was, but for the count and the history',
    async (failure) => {
      await parkDead(1);
      await (await kit.owner()).park(request(record(2, { key: null }), { redelivery: later }));
      const before = await kit.rows();
      const events = replaying(new ConsumerDouble(kit.dataSource, () => failing(failure, new Error('still no'))));
      expect(await events.replay({ topic: 'orders' }, ann)).toEqual({ ...none, failed: 2 });
      for (const [index, row] of (await kit.rows()).entries()) {
        const { state, dueAt, rounds, reason, recordValue } = before[index]!;
        expect(row).toMatchObject({ state, dueAt, rounds, reason, recordValue, replays: 1 });
        expect(row.errorMessage).toBe('still no');
        expect(row.history.at(-1)).toMatchObject({ by: 'ann', outcome: 'failed' });
      }
    },
  );

  it('B40: that fails 50 times counts them, and the history stays at 20 entries', async () => {
    await parkDead(1);
    const events = replaying(new ConsumerDouble(kit.dataSource, () => failing('permanent')));
    for (let time = 0; time < 50; time += 1) await events.replay({ eventId: 'e1' }, ann);
    expect(await kit.rows()).toMatchObject([{ replays: 50, state: 'dead' }]);
    expect((await histories())[0]).toHaveLength(20);
  });

  it('B16: by two at once runs each event once', async () => {
    await parkDead(1, 2, 3, 4, 5, 6);
    const counts = await Promise.all([1, 2].map(() => replaying().replay({ state: 'dead' }, ann)));
    expect((await kit.effects()).toSorted()).toEqual(['e1', 'e2', 'e3', 'e4', 'e5', 'e6']);
    expect(counts.reduce((sum, { processed }) => sum + processed, 0)).toBe(6);
    await replaying().replay({ state: 'dead' }, ann);
    expect(await kit.rows()).toEqual([]);
  });

  it('never takes a discarded event', async () => {
    await parkDead(1);
    await kit.room().events.discard({ eventId: 'e1' }, because);
    expect(await replaying().replay({ eventId: 'e1' }, ann)).toEqual(none);
    expect(await kit.effects()).toEqual([]);
  });

  it('is refused with NO_HANDLER, before anything runs, when this application lacks one of the handlers', async () => {
    await parkDead(1);
    await (await kit.owner()).park(request(record(2), { consumer: 'audit' }));
    expect(await codeOf(replaying().replay({ topic: 'orders' }, ann))).toBe('NO_HANDLER');
    expect(await codeOf(kit.room().events.replay({ eventId: 'e1' }, ann))).toBe('NO_HANDLER');
    expect(await kit.effects()).toEqual([]);
  });

  it('as a dry run tells what would run, what is a duplicate and what is behind, and runs nothing', async () => {
    await parkKey(1, 2);
    await parkDead(5, 6);
    await kit.dataSource.query(
      `INSERT INTO processed_events (consumer, event_id, topic, partition, record_offset, fingerprint) VALUES ($1, 'e5', 'orders', 0, 5, 0)`,
      [CONSUMER],
    );
    const { events } = kit.room();
    const before = await kit.rows();
    expect(await events.replay({ topic: 'orders' }, { by: 'ann', dryRun: true })).toEqual({
      ...none,
      processed: 3,
      duplicate: 1,
    });
    expect(await events.replay({ state: 'held' }, { by: 'ann', dryRun: true })).toEqual({ ...none, behind: 1 });
    expect(await kit.rows()).toEqual(before);
  });
});

describe('a discard', () => {
  it('leaves a tombstone that says who and why, and frees the key', async () => {
    await parkKey(1, 2);
    const events = replaying();
    expect(await events.discard({ state: 'dead' }, because)).toBe(1);
    const [row] = (await kit.rows()).filter(({ state }) => state === 'discarded');
    expect(row!.history.at(-1)).toMatchObject(because);
    expect(kit.events).toContainEqual(expect.objectContaining({ name: 'discarded', eventId: 'e1', ...because }));
    await expect.poll(() => kit.effects(), { timeout: 10_000 }).toEqual(['e2']);
  });

  it('counts only those that were not discarded before', async () => {
    await parkDead(1, 2);
    const { events } = kit.room();
    expect(await events.discard({ eventId: 'e1' }, because)).toBe(1);
    expect(await events.discard({ topic: 'orders' }, because)).toBe(1);
    expect(await events.discard({ topic: 'orders' }, because)).toBe(0);
  });
});

describe('an edit', () => {
  it('is what is delivered from then on; the original value and the event id stay', async () => {
    await parkDead(1);
    const consumer = new ConsumerDouble(kit.dataSource);
    const events = replaying(consumer);
    const { id, version } = (await events.list({}))[0]!;
    const headers = [
      ['a', Buffer.from('1')],
      ['a', Buffer.alloc(0)],
    ] as const;
    const edited = await events.edit(id, { value: Buffer.from('mended'), headers, version, by: 'ann' });
    expect(edited).toMatchObject({
      recordValue: Buffer.from('value 1'),
      editedValue: Buffer.from('mended'),
      headers,
      eventId: 'e1',
      version: version + 1,
    });
    expect(edited.history.at(-1)).toMatchObject({ by: 'ann', edited: ['value', 'headers'] });
    expect(await events.replay({ ids: [id] }, ann)).toEqual({ ...none, processed: 1 });
    expect(consumer.seen[0]).toMatchObject({ eventId: 'e1', record: { value: Buffer.from('mended'), headers } });
  });

  it('of the headers alone leaves the value, and the other way round', async () => {
    await parkDead(1);
    const { events } = kit.room();
    const { id } = (await events.list({}))[0]!;
    await events.edit(id, { headers: [], version: 1, by: 'ann' });
    expect(await events.get(id)).toMatchObject({ headers: [], editedValue: null });
    await events.edit(id, { value: Buffer.alloc(0), version: 2, by: 'ann' });
    expect(await events.get(id)).toMatchObject({ headers: [], editedValue: Buffer.alloc(0) });
  });

  it('of two at once is refused for one with PARKED_CHANGED', async () => {
    await parkDead(1);
    const { events } = kit.room();
    const { id } = (await events.list({}))[0]!;
    const edits = await Promise.allSettled(
      ['a', 'b'].map((text) => events.edit(id, { value: Buffer.from(text), version: 1, by: 'ann' })),
    );
    const refused = edits.filter((edit) => edit.status === 'rejected');
    expect(refused).toHaveLength(1);
    expect(IdempotencyError.is(refused[0]!.reason, 'PARKED_CHANGED')).toBe(true);
  });

  it('of a discarded event is refused, and one that is gone is PARKED_NOT_FOUND', async () => {
    await parkDead(1);
    const { events } = kit.room();
    const { id } = (await events.list({}))[0]!;
    await events.discard({ ids: [id] }, because);
    const change = { value: Buffer.from('x'), by: 'ann' };
    expect(await codeOf(events.edit(id, { ...change, version: 2 }))).toBe('PARKED_CHANGED');
    expect(await codeOf(events.edit('999', { ...change, version: 1 }))).toBe('PARKED_NOT_FOUND');
  });
});
