import { fork } from 'node:child_process';
import { once } from 'node:events';
import { fileURLToPath } from 'node:url';
import { expect, onTestFinished, test } from 'vitest';
import { until } from 'nestjs-kafka-idempotency/testing';
import type { RelayPlan } from '../integration/outbox/relay-child.js';
import { idsOf } from '../integration/outbox/kit.js';
import { Topics } from '../integration/kafka/topics.js';
import { currentDelivery } from 'nestjs-kafka-idempotency';
import { eventHandler, writeEffect } from './kit/handlers.js';
import { testService, testWorld } from './kit/in-test.js';

const CHILD = fileURLToPath(new URL('../integration/outbox/relay-child.js', import.meta.url));
const ROUNDS = 50;
const PER_ROUND = 2;

/** Where it dies: committed and not sent; acknowledged by Kafka and not deleted; somewhere in between, or before. */
function deathOf(round: number): Pick<RelayPlan, 'dies' | 'signal'> {
  if (round % 3 === 0) return { dies: 'stored' };
  if (round % 3 === 1) return { signal: { name: 'SIGKILL', at: 1 } };
  return { dies: { storingMs: Math.floor(round / 3) % 8 } };
}

test(`a producer killed between store and send, ${ROUNDS} times, and started again with the same input: every input is in the topic under one id, and applied once`, async () => {
  const world = await testWorld();
  const topic = await world.topic();
  const inputs = Array.from({ length: ROUNDS * PER_ROUND }, (_, at) => `input-${at}`);
  const consumer = eventHandler<string>(topic, (input, tools) => writeEffect(tools, input, currentDelivery()!.eventId));
  // Without a relay of its own: it would hold the shards, and the producer's relay would never get to send.
  await testService(world, { controllers: [consumer], options: { decode: 'text', outbox: { relay: false } } });

  const { databaseUrl: url, schema, brokers } = world;
  const producer = async (count: number, death: Pick<RelayPlan, 'dies' | 'signal'>) => {
    const publish = { topic, inputs: inputs.slice(0, count) };
    const plan: RelayPlan = { url, schema, brokers, relay: true, leaseMs: 500, publish, ...death };
    const child = fork(CHILD, [JSON.stringify(plan)], { stdio: ['ignore', 'inherit', 'inherit', 'ipc'] });
    const told: unknown[] = [];
    child.on('message', (message) => told.push(message));
    const ended = once(child, 'exit') as Promise<[number | null, NodeJS.Signals | null]>;
    onTestFinished(async () => {
      child.kill('SIGKILL');
      await ended;
    });
    return { told, ended };
  };

  for (let round = 1; round <= ROUNDS; round += 1) {
    const { ended } = await producer(round * PER_ROUND, deathOf(round));
    expect(await ended, `round ${round}`).toEqual([null, 'SIGKILL']);
  }
  const last = await producer(inputs.length, {});
  await until(() => inputs.every((input) => last.told.includes(input)), { what: 'the last one', timeoutMs: 20_000 });
  const left = async () => (await world.db.query<{ n: string }[]>('SELECT count(*) AS n FROM outbox_messages'))[0]!.n;
  await until(async () => (await left()) === '0', { what: 'an empty outbox', timeoutMs: 20_000 });
  await world.untilAtEnd(topic);

  const stored = await (await Topics.open()).read(topic);
  const idOf = new Map(idsOf(stored).map((id, at) => [id!, stored[at]!.value]));
  expect([...idOf.values()]).toEqual(inputs); // each under one id, the first copies in order
  expect(stored.length, 'copies that were sent again').toBeGreaterThan(inputs.length);
  const applied = await world.db.query<{ event_id: string; handler: string }[]>(
    'SELECT event_id, handler FROM effects ORDER BY id',
  );
  expect(applied.map(({ event_id, handler }) => [handler, event_id])).toEqual([...idOf]);
}, 180_000);
