import type { DataSource, QueryRunner } from 'typeorm';
import { beforeEach, describe, expect, it } from 'vitest';
import { eventIdOf } from '#src/handler/identity/event-id.js';
import { header } from '#src/handler/identity/header.js';
import { recordKey } from '#src/handler/identity/record-parts.js';
import { claimStatement, claimValues, type Claim } from '#src/inbox/claim.js';
import { ProcessedEventEntity } from '#src/schema/index.js';
import { qualifiedTable } from '#src/shared/sql-identifier.js';
import type { RecordView } from '#src/shared/record.js';
import { until } from 'nestjs-kafka-idempotency/testing';
import { useDatabase, useSchema, versions } from '../schema/own-schema.js';

const database = useDatabase();

const E1: Claim = {
  consumer: 'billing.charge',
  eventId: 'e1',
  topic: 'orders',
  partition: 3,
  offset: '42',
  fingerprint: '7',
};

describe.each(versions)('the claim on %s', (_, orm) => {
  const own = useSchema(database, orm);
  const claim = async (change: Partial<Claim> = {}, on: DataSource | QueryRunner = own.dataSource): Promise<number> =>
    (
      (await on.query(
        claimStatement(qualifiedTable(own.name, 'processed_events'), 2000).text,
        claimValues({ ...E1, ...change }),
      )) as unknown[]
    ).length;
  const rows = async (): Promise<Record<string, unknown>[]> =>
    own.dataSource.query('SELECT * FROM processed_events ORDER BY event_id');

  beforeEach(async () => {
    // Both TypeORMs keep what decorators say in one global; a storage of the other version lacks methods.
    delete (globalThis as { typeormMetadataArgsStorage?: unknown }).typeormMetadataArgsStorage;
    await own.dataSource.runMigrations();
  });

  it('B17: gives one row for a new event and none for a duplicate', async () => {
    expect(await claim()).toBe(1);
    expect(await claim({ offset: '43', fingerprint: '8' })).toBe(0);
    expect(await rows()).toHaveLength(1);
  });

  it('B17: calls no entity subscriber, as an insert through the entity would', async () => {
    const called: string[] = [];
    @orm.EventSubscriber()
    class Listener {
      beforeInsert() {
        called.push('beforeInsert');
      }
    }
    const listening = await own.connect({ subscribers: [Listener] });
    await listening.transaction(async (manager) => {
      expect(await claim({}, manager.queryRunner!)).toBe(1);
      expect(await claim({}, manager.queryRunner!)).toBe(0);
    });
    expect(called).toEqual([]);
    const { offset: recordOffset, ...rest } = E1;
    await listening.getRepository(ProcessedEventEntity).insert({ ...rest, eventId: 'e2', recordOffset });
    expect(called).toEqual(['beforeInsert']);
  });

  it('B16: is free for another consumer of the same event', async () => {
    expect(await claim({ consumer: 'a' })).toBe(1);
    expect(await claim({ consumer: 'b' })).toBe(1);
    expect(await claim({ consumer: 'a' })).toBe(0);
  });

  it('keeps where the record stood and the fingerprint of its value', async () => {
    await claim({ offset: '9223372036854775807', fingerprint: '-9223372036854775808' });
    const [row] = await rows();
    expect(row).toMatchObject({
      consumer: 'billing.charge',
      event_id: 'e1',
      topic: 'orders',
      partition: 3,
      record_offset: '9223372036854775807',
      fingerprint: '-9223372036854775808',
    });
    expect(row!['processed_at']).toBeInstanceOf(Date);
  });

  it('is free again when the transaction that made it rolls back', async () => {
    const session = await own.session();
    await session.startTransaction();
    expect(await claim({}, session)).toBe(1);
    await session.rollbackTransaction();
    expect(await claim()).toBe(1);
  });

  it.each([
    ['none when that commits', 'commitTransaction', 0],
    ['one when that rolls back', 'rollbackTransaction', 1],
  ] as const)('waits for a live copy, and gives %s', async (_name, end, expected) => {
    const first = await own.session();
    await first.startTransaction();
    expect(await claim({}, first)).toBe(1);
    const second = await own.session();
    const [{ pid }] = (await second.query('SELECT pg_backend_pid() AS pid')) as [{ pid: number }];
    const waiting = claim({}, second);
    await until(
      async () => {
        const [row] = (await own.dataSource.query('SELECT wait_event_type FROM pg_stat_activity WHERE pid = $1', [
          pid,
        ])) as { wait_event_type: string }[];
        return row?.wait_event_type === 'Lock';
      },
      { what: 'the second claim waiting for the first' },
    );
    await first[end]();
    expect(await waiting).toBe(expected);
  });

  it('B57: takes ids of every length, tells them apart and knows each again', async () => {
    const ids = [
      'a'.repeat(255),
      'a'.repeat(256),
      `${'a'.repeat(2999)}b`,
      `${'a'.repeat(2999)}c`,
      'a'.repeat(70_000),
      'é'.repeat(70_000),
    ];
    const events = ids.map((id) =>
      eventIdOf(header('event-id'), recordWith({ headers: new Map([['event-id', [Buffer.from(id)]]]) })),
    );
    for (const eventId of events) expect(await claim({ eventId })).toBe(1);
    for (const eventId of events) expect(await claim({ eventId })).toBe(0);
    expect(await rows()).toHaveLength(ids.length);
  });

  it('B57: takes a topic and a consumer of the longest name', async () => {
    expect(await claim({ topic: 't'.repeat(249), consumer: 'c'.repeat(255), eventId: 'é'.repeat(127) })).toBe(1);
  });

  it('B14: tells binary keys apart that differ in one byte', async () => {
    for (const hex of ['fffe01', 'fffd01', '00000001']) {
      expect(await claim({ eventId: eventIdOf(recordKey(), recordWith({ key: Buffer.from(hex, 'hex') })) })).toBe(1);
    }
    expect((await rows()).map((row) => row['event_id'])).toEqual(['hex:00000001', 'hex:fffd01', 'hex:fffe01']);
  });

  it.each(["'; DROP TABLE processed_events; --", '$1', '%s\\', '\u{1F600}', '\uFEFFe1', 'e\u0301'])(
    'stores the id %j as it is',
    async (eventId) => {
      expect(await claim({ eventId })).toBe(1);
      expect((await rows())[0]!['event_id']).toBe(eventId);
    },
  );
});

function recordWith(parts: Partial<RecordView>): RecordView {
  return {
    topic: 'orders',
    partition: 3,
    offset: '42',
    timestamp: new Date(0),
    key: null,
    value: null,
    headers: new Map(),
    decoded: () => null,
    ...parts,
  };
}
