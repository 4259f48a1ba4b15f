import { expect, test } from 'vitest';
import { LaneTransactions } from '#src/consumer/lane-transactions.js';
import { OffsetLedger } from '#src/consumer/offset-ledger.js';
import type { KafkaCommit, TransactionalProducer } from '#src/kafka/transactional-producer.js';
import { DeliveryInProgress } from '#src/shared/delivery.js';
import { IdempotencyError } from '#src/shared/errors.js';
import type { IdempotencyEvent } from '#src/shared/events.js';

// What Kafka does is tried in e2e/exactly-once; this is who may commit, and when.

const place = { topic: 'orders', partition: 3 };
const away = new IdempotencyError('BROKER_UNAVAILABLE', 'gone', { retryable: true });

/** `group`: where the group stands in Kafka. `answers`: how the next commits end, each done or not; default done and acknowledged. */
function transactionsAt(group: bigint, ...answers: { readonly done: boolean; readonly error?: unknown }[]) {
  const kafka = { group, fences: 0, commits: [] as bigint[], existing: true };
  const producer = {
    fence: () => {
      kafka.fences += 1;
      return Promise.resolve();
    },
    commit: ({ offset: { offset }, onSent }: KafkaCommit) => {
      kafka.commits.push(offset);
      onSent();
      const { done, error } = answers.shift() ?? { done: true };
      if (done) kafka.group = offset;
      return error === undefined ? Promise.resolve() : Promise.reject(error as Error);
    },
    close: () => {},
  };
  const events: IdempotencyEvent[] = [];
  const transactions = new LaneTransactions({
    place,
    groupId: 'billing',
    producer: producer as unknown as TransactionalProducer,
    reader: {
      positions: () => Promise.resolve({ committed: new Map([['3/orders', kafka.group]]), bounds: new Map() }),
      existing: (topics) => Promise.resolve(kafka.existing ? [...topics] : []),
    },
    emit: (event) => events.push(event),
  });
  const lane = {
    ledger: new OffsetLedger(group, group),
    isDead: false,
    outruns: 0,
    outrun: () => void (lane.outruns += 1),
  };
  return { kafka, transactions, lane, events };
}

const delivery = () =>
  new DeliveryInProgress({ ...place, offset: '7' } as ConstructorParameters<typeof DeliveryInProgress>[0], 'test', 1);

test('a lane that was not admitted since the last fence commits nothing: the group may have gone on without it', async () => {
  const { kafka, transactions, lane, events } = transactionsAt(7n);
  lane.ledger.cover(9n);
  expect(await transactions.commit([delivery()], 9n, lane)).toMatchObject({ kind: 'unknown' });
  await transactions.fence();
  transactions.admit(lane);
  await transactions.fence();
  expect(await transactions.commit([delivery()], 9n, lane)).toMatchObject({ kind: 'unknown' });
  await transactions.flush(lane);
  expect(kafka.commits).toEqual([]);
  transactions.admit(lane);
  expect(await transactions.commit([delivery()], 9n, lane)).toEqual({ kind: 'committed' });
  expect(kafka.commits).toEqual([9n]);
  expect(events.map(({ name }) => name)).toEqual(['committing', 'committed', 'processed']);
  transactions.close();
  expect(await transactions.commit([delivery()], 10n, lane)).toMatchObject({ kind: 'unknown' });
});

test.each([
  ['it was committed', { done: true, error: away }, { kind: 'committed' }, 9n],
  ['it was not, and the brokers were away', { done: false, error: away }, { kind: 'unknown' }, 7n],
  [
    'it was not, for what was sent is too large',
    { done: false, error: new IdempotencyError('MESSAGE_TOO_LARGE', 'much') },
    { kind: 'refused' },
    7n,
  ],
] as const)(
  'a commit without an answer is fenced, and the offset of the group tells: %s',
  async (_, answer, end, stands) => {
    const { kafka, transactions, lane } = transactionsAt(7n, answer);
    transactions.admit(lane);
    expect(await transactions.commit([delivery()], 9n, lane)).toMatchObject(end);
    expect([kafka.fences, lane.ledger.committed, lane.outruns]).toEqual([1, stands, 0]);
    await transactions.commit([delivery()], 9n, lane);
    expect(kafka.commits, 'it was admitted again').toEqual([9n, 9n]);
  },
);

test('a commit that failed where the group stands elsewhere now: the lane is outrun, and commits nothing more', async () => {
  const { kafka, transactions, lane } = transactionsAt(7n, { done: false, error: away });
  transactions.admit(lane);
  const ended = transactions.commit([delivery()], 9n, lane);
  kafka.group = 20n;
  expect(await ended).toMatchObject({ kind: 'unknown' });
  expect(lane.outruns).toBe(1);
  expect(await transactions.commit([delivery()], 9n, lane)).toMatchObject({ kind: 'unknown' });
  expect(kafka.commits).toEqual([9n]);
});

test('an offset by itself is written forward only, and never beside a commit that is under way', async () => {
  const { kafka, transactions, lane } = transactionsAt(7n);
  transactions.admit(lane);
  lane.ledger.take(7n);
  const commit = transactions.commit([delivery()], 8n, lane);
  const flush = transactions.flush(lane); // what is settled is behind the commit: the lane hears of that later
  await Promise.all([commit, flush]);
  expect(kafka.commits).toEqual([8n]);
  lane.ledger.settle(7n, { durable: true });
  lane.ledger.cover(12n);
  await transactions.flush(lane);
  await transactions.flush(lane);
  expect(kafka.commits).toEqual([8n, 12n]);
});
