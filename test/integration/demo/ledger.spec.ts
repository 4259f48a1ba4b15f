import { randomUUID } from 'node:crypto';
import { Kafka, logLevel } from 'kafkajs';
import type { DataSource } from 'typeorm';
import { afterEach, beforeEach, expect, test } from 'vitest';
import { databaseTime, readLedger } from '../../../sample/demo/ledger.js';
import { Workspace } from '../../../sample/demo/workspace.js';

// The demo's own check, shown rows as a broken consumer would leave them: a check that cannot fail shows nothing.

let workspace: Workspace;
let database: DataSource;
beforeEach(async () => {
  const brokers = (process.env['KAFKA_BROKERS'] as string).split(',');
  const services = {
    brokers,
    databaseUrl: process.env['DATABASE_URL'] as string,
    origin: { kafka: 'environment', postgres: 'environment' } as const,
    stop: () => Promise.resolve(),
  };
  workspace = await Workspace.create(services, new Kafka({ brokers, logLevel: logLevel.NOTHING }));
  database = workspace.database;
});
afterEach(() => workspace.close());

const INSERT = 'INSERT INTO payments (order_id, customer, order_number, cents) VALUES ($1, $2, $3, 1)';

async function pay(
  id: string,
  number: number,
  customer = 'ada',
  on: Pick<DataSource, 'query'> = database,
): Promise<void> {
  await on.query(INSERT, [id, customer, number]);
}

async function ledgerOf(...ids: string[]) {
  const traces: unknown[] = [];
  const since = await databaseTime(database);
  const ledger = await readLedger(database, { ids: new Set(ids), since }, (trace) => traces.push(trace));
  return { ...ledger, traces: traces.length };
}

test('rows of two keys, each in its order, are in order', async () => {
  await pay('a1', 1);
  await pay('b1', 1, 'bob');
  await pay('a2', 2);
  await pay('b2', 2, 'bob');
  expect(await ledgerOf('a1', 'a2', 'b1', 'b2')).toMatchObject({
    applied: 4,
    lost: 0,
    doubled: 0,
    outOfOrder: 0,
    traces: 0,
  });
});

test('an acknowledged event without a row is lost', async () => {
  await pay('a1', 1);
  expect(await ledgerOf('a1', 'a2', randomUUID())).toMatchObject({ applied: 1, lost: 2, doubled: 0, outOfOrder: 0 });
});

test('every row of an event beyond its first is doubled', async () => {
  await pay('a1', 1);
  await pay('a1', 1);
  await pay('a1', 1);
  expect(await ledgerOf('a1')).toMatchObject({ applied: 3, lost: 0, doubled: 2, outOfOrder: 0 });
});

test('a row behind a later one of its key is out of order', async () => {
  await pay('a1', 1);
  await pay('a3', 3);
  await pay('a2', 2);
  await pay('a4', 4);
  expect(await ledgerOf('a1', 'a2', 'a3', 'a4')).toMatchObject({ applied: 4, lost: 0, doubled: 0, outOfOrder: 1 });
});

test('a row inserted first and committed behind a later one of its key is out of order, whatever the identity column says', async () => {
  const slow = database.createQueryRunner();
  await slow.startTransaction();
  await pay('a1', 1, 'ada', slow as never);
  await pay('a2', 2);
  await slow.commitTransaction();
  await slow.release();
  expect(await ledgerOf('a1', 'a2')).toMatchObject({ applied: 2, outOfOrder: 1 });
});

test('two rows of a key in one transaction are in order as they were inserted', async () => {
  await database.transaction(async ({ queryRunner }) => {
    await pay('a1', 1, 'ada', queryRunner as never);
    await pay('a2', 2, 'ada', queryRunner as never);
    await pay('b2', 2, 'bob', queryRunner as never);
    await pay('b1', 1, 'bob', queryRunner as never);
  });
  expect(await ledgerOf('a1', 'a2', 'b1', 'b2')).toMatchObject({ applied: 4, outOfOrder: 1 });
});
