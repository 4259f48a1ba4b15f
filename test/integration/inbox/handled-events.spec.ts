import { expect, test } from 'vitest';
import { useInbox } from './own-inbox.js';

const world = useInbox();

const idOf = (n: number): string => `e${String(n).padStart(6, '0')}`;

async function claims(consumer: string, count: number, on = world.own.dataSource.manager): Promise<void> {
  await on.query(
    `INSERT INTO processed_events (consumer, event_id, topic, partition, record_offset, fingerprint)
     SELECT $1, 'e' || lpad(n::text, 6, '0'), 'orders', 0, n, 0 FROM generate_series(1, $2::int) AS n`,
    [consumer, count],
  );
}

test('of the events asked for, those are handled that this consumer has a committed row of', async () => {
  await claims('mine', 3);
  await claims('theirs', 5);
  expect(await world.inbox.handled('mine', [1, 2, 3, 4].map(idOf))).toEqual(new Set([1, 2, 3].map(idOf)));
  expect(await world.inbox.handled('new', [idOf(1)])).toEqual(new Set());
  expect(await world.inbox.handled('mine', [])).toEqual(new Set());
  await world.own.dataSource.transaction(async (manager) => {
    await claims('later', 1, manager);
    expect(await world.inbox.handled('later', [idOf(1)])).toEqual(new Set());
  });
  expect(await world.inbox.handled('later', [idOf(1)])).toEqual(new Set([idOf(1)]));
});

test.each([2, 500])('%i of them are found by the primary key, not by reading the table', async (count) => {
  await claims('mine', 20_000);
  const asked = Array.from({ length: count }, (_, n) => idOf(n * 7));
  const plan = await world.planOf((inbox) => inbox.handled('mine', asked));
  expect(plan).toMatch(/(Index (Only )?Scan using|Bitmap Index Scan on) processed_events_pkey/);
  expect(plan).not.toContain('Seq Scan');
});
