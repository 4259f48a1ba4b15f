import { afterAll, beforeAll, expect, test } from 'vitest';
import { until } from 'nestjs-kafka-idempotency/testing';
import { startProxiedKafka, type ProxiedKafka } from '../services/proxied-kafka.js';
import { committedRecords } from './kit/committed-records.js';
import { exactlyOnceHandler, type TestEvent } from './kit/handlers.js';
import { testService, testWorld } from './kit/in-test.js';

// Requests to the broker get lost here, so it is these tests' own.
let broker: ProxiedKafka;
beforeAll(async () => {
  broker = await startProxiedKafka();
});
afterAll(() => broker.close());

/** Of Kafka's protocol. */
const [PRODUCE, INIT_PRODUCER_ID, END_TRANSACTION, OFFSETS_OF_TRANSACTION] = [0, 22, 26, 28];

test.each([
  ['the end of a transaction', 'request', END_TRANSACTION, 2],
  ['the answer to the end of a transaction that was done', 'answer', END_TRANSACTION, 1],
  ['the answer to its records (B68)', 'answer', PRODUCE, 2],
  ['the answer to its offsets', 'answer', OFFSETS_OF_TRANSACTION, 2],
] as const)(
  'F53 lost: %s. Another producer finds out what became of it, and the output is there once',
  async (_, what, key, runs) => {
    const world = await testWorld({ brokers: broker.kafka.brokers });
    const [from, to] = [await world.topic(), await world.topic(1, 'out')];
    const calls: string[] = [];
    const place = { schema: world.schema, group: world.group, databaseUrl: world.databaseUrl, brokers: broker.brokers };
    const service = await testService(place, {
      controllers: [
        exactlyOnceHandler(from, async ({ id }, publisher) => {
          calls.push(id);
          await publisher.publish(to, { id });
        }),
      ],
    });
    const proxy = broker.proxies[0]!;
    await until(() => service.named('assigned').length > 0 && service.named('committed').length > 0, {
      what: 'the first position to stand',
      timeoutMs: 20_000,
    });
    const fences = proxy.requests(INIT_PRODUCER_ID);
    const loss = proxy.lose(what, key);
    await world.producer.send({ topic: from, messages: [{ value: '{"id":"a"}' }, { value: '{"id":"b"}' }] });
    await until(() => service.named('processed').length === 2, { what: 'both to be processed', timeoutMs: 30_000 });
    expect(await world.committed(from)).toBe(2n);
    expect(loss.hits).toBe(1);
    expect(proxy.requests(INIT_PRODUCER_ID)).toBeGreaterThan(fences);
    const found = await committedRecords(world, to);
    expect(found.map(({ value }) => (JSON.parse(value!) as TestEvent).id)).toEqual(['a', 'b']);
    expect(calls).toEqual(Array.from({ length: runs }, () => ['a', 'b']).flat());
    expect(service.failures).toEqual([]);
  },
  60_000,
);
