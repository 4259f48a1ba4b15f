import { beforeEach, expect, test } from 'vitest';
import { Inbox } from '#src/inbox/inbox.js';
import { qualifiedTable } from '#src/shared/sql-identifier.js';
import { useDatabase, useSchema } from '../schema/own-schema.js';

const own = useSchema(useDatabase());
let inbox: Inbox;

beforeEach(async () => {
  await own.dataSource.runMigrations();
  inbox = new Inbox(1000, (sql, values) => own.dataSource.query<unknown[]>(sql, [...values]));
  inbox.open(qualifiedTable(own.name, 'processed_events'));
});

async function claims(consumer: string, topic: string, count: number): Promise<void> {
  await own.dataSource.query(
    `INSERT INTO processed_events (consumer, event_id, topic, partition, record_offset, fingerprint)
     SELECT $1, $2 || lpad(n::text, 6, '0'), $2, 0, n, 0 FROM generate_series(1, $3::int) AS n`,
    [consumer, topic, count],
  );
}

test('F46 only topics of which one of the consumers has claims have been handled before', async () => {
  await claims('mine', 'a', 3);
  await claims('theirs', 'b', 3);
  expect(await inbox.handledBefore(['mine', 'new'], ['a', 'b', 'c'])).toEqual(new Set(['a']));
  expect(await inbox.handledBefore([], ['a'])).toEqual(new Set());
});

test('F46 it reads the end of the primary key, not the table', async () => {
  await claims('mine', 'a', 20_000);
  await own.dataSource.query('ANALYZE processed_events');
  let plan = '';
  const explaining = new Inbox(1000, async (sql, values) => {
    const rows = await own.dataSource.query<{ 'QUERY PLAN': string }[]>(`EXPLAIN ${sql}`, [...values]);
    plan = rows.map((row) => row['QUERY PLAN']).join('\n');
    return [];
  });
  explaining.open(qualifiedTable(own.name, 'processed_events'));
  await explaining.handledBefore(['mine'], ['a']);
  expect(plan).toMatch(/Index (Only )?Scan Backward using/);
  expect(plan).not.toContain('Seq Scan');
});
