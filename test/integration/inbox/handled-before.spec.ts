import { expect, test } from 'vitest';
import { useInbox } from './own-inbox.js';

const world = useInbox();

async function claims(consumer: string, topic: string, count: number): Promise<void> {
  await world.own.dataSource.query(
    `INSERT INTO processed_events (consumer, event_id, topic, partition, record_offset, fingerprint)
     SELECT $1, $2 || lpad(n::text, 6, '0'), $2, 0, n, 0 FROM generate_series(1, $3::int) AS n`,
    [consumer, topic, count],
  );
}

test('F46 only topics of which one of the consumers has claims have been handled before', async () => {
  await claims('mine', 'a', 3);
  await claims('theirs', 'b', 3);
  expect(await world.inbox.handledBefore(['mine', 'new'], ['a', 'b', 'c'])).toEqual(new Set(['a']));
  expect(await world.inbox.handledBefore([], ['a'])).toEqual(new Set());
});

test('F46 it reads the end of the primary key, not the table', async () => {
  await claims('mine', 'a', 20_000);
  const plan = await world.planOf((inbox) => inbox.handledBefore(['mine'], ['a']));
  expect(plan).toMatch(/Index (Only )?Scan Backward using/);
  expect(plan).not.toContain('Seq Scan');
});
