import { describe, expect, it } from 'vitest';
import { until } from 'nestjs-kafka-idempotency/testing';
import { versions } from '../schema/own-schema.js';
import { ConsumerDouble, failing, gated, record, request, useParking } from './kit.js';

// TypeORM answers INSERT, UPDATE and DELETE in different shapes, and not the same in every version.
describe.each(versions)('on %s', (_, orm) => {
  const kit = useParking(orm);

  it('an event is parked, held behind, redelivered, replayed, edited and discarded', async () => {
    const room = kit.room();
    const owner = await kit.owner(0, room);
    await owner.mark(1n);
    expect(await owner.park(request(record(1), { reason: 'permanent' }))).toBe('dead');
    expect(await owner.park(request(record(1)))).toBe('dead');
    expect(await owner.gate(gated(record(2)))).toBe('held');
    expect(await owner.gate(gated(record(1)))).toBe('parked');
    let fails = true;
    room.start(new ConsumerDouble(kit.dataSource, () => (fails ? failing('transient') : 'run')));
    expect(await room.events.replay({ eventId: 'e1' }, { by: 'ann' })).toMatchObject({ failed: 1 });
    const { id, version } = (await room.events.list({ eventId: 'e1' }))[0]!;
    await room.events.edit(id, { value: Buffer.from('mended'), version, by: 'ann' });
    fails = false;
    expect(await room.events.replay({ ids: [id] }, { by: 'ann' })).toMatchObject({ processed: 1 });
    await until(async () => (await kit.effects()).length === 2, { what: 'the held event' });
    expect(await kit.effects()).toEqual(['e1', 'e2']);
    await owner.park(request(record(3), { reason: 'permanent' }));
    expect(await room.events.discard({ state: 'dead' }, { by: 'ann', why: 'test' })).toBe(1);
    expect(await room.events.count()).toEqual({ scheduled: 0, dead: 0, held: 0, discarded: 1 });
    await owner.unmark();
    expect(await kit.dataSource.query('SELECT * FROM running_records')).toEqual([]);
  });
});
