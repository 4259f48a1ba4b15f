import { describe, expect, it } from 'vitest';
import type { ParkingRoom } from '#src/parking/parking-room.js';
import { IdempotencyError } from '#src/shared/errors.js';
import { rejection } from '../schema/own-schema.js';
import { CONSUMER, gated, record, request, TOPIC, useParking } from './kit.js';

const kit = useParking();
const other = { key: Buffer.from('other') };
const discard = (offset: number, room: ParkingRoom = kit.room()) =>
  room.events.discard({ eventId: `e${offset}` }, { by: 'ann', why: 'test' });
const remove = (offset: number) => kit.dataSource.query('DELETE FROM parked_events WHERE record_offset = $1', [offset]);

describe('an event behind a parked one of its key', () => {
  it('is held, and those behind it too, in the rows of one consumer', async () => {
    const owner = await kit.owner();
    await owner.park(request(record(1), { reason: 'permanent' }));
    expect(await owner.gate(gated(record(2)))).toBe('held');
    expect(await owner.gate(gated(record(3)))).toBe('held');
    expect(await kit.rows()).toMatchObject([
      { state: 'dead', recordOffset: '1' },
      { state: 'held', recordOffset: '2', reason: 'behind', eventId: 'e2', recordValue: record(2).value, attempts: 0 },
      { state: 'held', recordOffset: '3', dueAt: null, errorCode: null, history: [] },
    ]);
    expect(owner.gate(gated(record(2), { consumer: 'audit' }))).toBeUndefined();
  });

  it('is held by the next owner too, who has read what is parked', async () => {
    await (await kit.owner()).park(request(record(1)));
    expect(await (await kit.owner(2)).gate(gated(record(2)))).toBe('held');
  });

  it('is told by the whole key, however long and whatever its bytes', async () => {
    const owner = await kit.owner();
    const key = Buffer.alloc(1000, 0xff);
    await owner.park(request(record(1, { key })));
    const near = Buffer.from(key);
    near[999] = 0;
    expect(owner.gate(gated(record(2, { key: near })))).toBeUndefined();
    expect(await owner.gate(gated(record(3, { key })))).toBe('held');
    const next = await kit.owner(4);
    expect(next.gate(gated(record(4, { key: near })))).toBeUndefined();
    expect(await next.gate(gated(record(5, { key })))).toBe('held');
  });

  it('runs when the key is held no more, and the key costs nothing from then on', async () => {
    const owner = await kit.owner();
    await owner.park(request(record(1)));
    await remove(1);
    expect(await owner.gate(gated(record(2)))).toBe('run');
    expect(owner.gate(gated(record(3)))).toBeUndefined();
  });

  it('runs behind a discarded one', async () => {
    const owner = await kit.owner();
    await owner.park(request(record(1)));
    await discard(1);
    expect(await owner.gate(gated(record(2)))).toBe('run');
    expect((await kit.owner(1)).gate(gated(record(3)))).toBeUndefined();
  });

  it('is never held without a key', async () => {
    const owner = await kit.owner();
    await owner.park(request(record(1, { key: null })));
    expect(owner.gate(gated(record(2, { key: null })))).toBeUndefined();
  });

  it('is not held when its handler does not hold keys', async () => {
    const owner = await kit.owner();
    await owner.park(request(record(1), { holdKey: false }));
    expect(owner.gate(gated(record(2)))).toBeUndefined();
    await owner.park(request(record(3)));
    expect(owner.gate(gated(record(4), { holdKey: false }))).toBeUndefined();
  });

  it('B16: F27: is never lost between two: held in time it comes up, or it runs, while the one before is taken away', async () => {
    const owner = await kit.owner();
    for (let round = 0; round < 40; round += 1) {
      const [first, second] = [record(round * 2), record(round * 2 + 1)];
      await owner.park(request(first, { reason: 'permanent' }));
      // Taken away as a redelivery does it: in a transaction of its own, and the key released behind the commit.
      const away = discard(round * 2);
      const placed = await owner.gate(gated(second));
      await away;
      const row = (await kit.rows()).find(({ recordOffset }) => recordOffset === second.offset.toString());
      expect([placed, row?.state]).toBeOneOf([
        ['held', 'scheduled'],
        ['run', undefined],
      ]);
      await kit.dataSource.query('DELETE FROM parked_events');
    }
  });
});

describe('an event that is parked itself', () => {
  it('is not run beside its parked self when Kafka brings it again, whether its key is held or not', async () => {
    await (await kit.owner()).park(request(record(1), { holdKey: false }));
    await (await kit.owner()).park(request(record(2, other)));
    const owner = await kit.owner(1);
    expect(await owner.gate(gated(record(1), { holdKey: false }))).toBe('parked');
    expect(await owner.gate(gated(record(1)))).toBe('parked');
    expect(await owner.gate(gated(record(2, other)))).toBe('parked');
    expect(await kit.rows()).toHaveLength(2);
  });

  it('is not run after it was discarded', async () => {
    const before = await kit.owner();
    await before.park(request(record(1)));
    await discard(1);
    expect(await before.gate(gated(record(1)))).toBe('parked');
    expect(await (await kit.owner(1)).gate(gated(record(1)))).toBe('parked');
    expect(await (await kit.owner(1)).gate(gated(record(1), { holdKey: false }))).toBe('parked');
  });

  it('runs when its row has gone: the claim decides then', async () => {
    const owner = await kit.owner();
    await owner.park(request(record(1), { holdKey: false }));
    await remove(1);
    expect(await owner.gate(gated(record(1), { holdKey: false }))).toBe('run');
    expect(owner.gate(gated(record(1), { holdKey: false }))).toBeUndefined();
  });

  it('is another event when the topic was made anew', async () => {
    const owner = await kit.owner();
    await owner.park(request(record(1), { holdKey: false }));
    expect(owner.gate(gated(record(1, { timestamp: new Date(5) }), { holdKey: false }))).toBeUndefined();
  });

  it('does not wait for its own redelivery that is under way', async () => {
    const owner = await kit.owner();
    await owner.park(request(record(1)));
    await owner.gate(gated(record(2)));
    const session = await kit.own.session();
    await session.startTransaction();
    await session.query('DELETE FROM parked_events WHERE record_offset = 2');
    expect(await owner.gate(gated(record(2)))).toBe('parked');
    await session.rollbackTransaction();
  });
});

describe('what an owner reads when it opens its partitions', () => {
  it('is one statement per table, and none for any record while nothing is parked', async () => {
    const statements: string[] = [];
    const room = kit.room({
      query: (sql, parameters) => {
        statements.push(sql);
        return kit.dataSource.query(sql, parameters);
      },
    });
    const places = Array.from({ length: 50 }, (_, partition) => ({ topic: TOPIC, partition, from: 0n }));
    const owned = await room.parking.open(places);
    expect(statements).toHaveLength(2);
    for (let offset = 0; offset < 1000; offset += 1)
      expect(owned[offset % 50]!.gate(gated(record(offset)))).toBeUndefined();
    expect(statements).toHaveLength(2);
  });

  it('is of its own group, topic and partition, each to its place', async () => {
    const places = [0, 1, 2].map((partition) => ({ topic: TOPIC, partition, from: 0n }));
    const [first, second] = await kit.room().parking.open(places);
    await first!.park(request(record(5)));
    await second!.park(request(record(6, { partition: 1, ...other })));
    const [p2, p1, p0] = await kit.room().parking.open(places.toReversed());
    expect(p2!.gate(gated(record(7, { partition: 2 })))).toBeUndefined();
    expect(p1!.gate(gated(record(7, { partition: 1 })))).toBeUndefined();
    expect(await p1!.gate(gated(record(7, { partition: 1, ...other })))).toBe('held');
    expect(await p0!.gate(gated(record(7)))).toBe('held');
    const elsewhere = await kit.owner(0, kit.room({ groupId: 'another' }));
    expect(elsewhere.gate(gated(record(7)))).toBeUndefined();
  });

  it('rejects with DATABASE_UNAVAILABLE when it cannot be read, and so does the gate', async () => {
    const owner = await kit.owner();
    await owner.park(request(record(1)));
    await kit.dataSource.query('ALTER TABLE parked_events RENAME TO away');
    for (const failing of [kit.owner(), owner.gate(gated(record(2)))!]) {
      const error = await rejection(failing);
      expect(IdempotencyError.is(error, 'DATABASE_UNAVAILABLE')).toBe(true);
      expect((error as IdempotencyError).retryable).toBe(true);
    }
    await kit.dataSource.query('ALTER TABLE away RENAME TO parked_events');
    expect(await owner.gate(gated(record(2)))).toBe('held');
  });

  it(`knows the consumer's rows by name: ${CONSUMER}`, async () => {
    await (await kit.owner()).park(request(record(1), { consumer: 'audit' }));
    const next = await kit.owner();
    expect(next.gate(gated(record(2)))).toBeUndefined();
    expect(await next.gate(gated(record(2), { consumer: 'audit' }))).toBe('held');
  });
});
