import { fork, type ChildProcess } from 'node:child_process';
import { fileURLToPath } from 'node:url';
import { expect, onTestFinished, test } from 'vitest';
import { until } from 'nestjs-kafka-idempotency/testing';
import { Topics } from '../kafka/topics.js';
import { idsOf, useOutbox } from './kit.js';
import type { RelayPlan } from './relay-child.js';

const CHILD = fileURLToPath(new URL('./relay-child.js', import.meta.url));
const kit = useOutbox();

interface Child {
  readonly told: string[];
  readonly process: ChildProcess;
  hasEnded: boolean;
}

function child(plan: Pick<RelayPlan, 'relay' | 'signal' | 'publish' | 'batch'>): Child {
  const brokers = process.env['KAFKA_BROKERS']?.split(',') ?? [];
  const whole: RelayPlan = { ...plan, url: kit.database.url, schema: kit.own.name, brokers };
  const forked = fork(CHILD, [JSON.stringify(whole)], { stdio: ['ignore', 'inherit', 'inherit', 'ipc'] });
  const made: Child = { told: [], process: forked, hasEnded: false };
  forked.on('message', (message) => made.told.push(message as string));
  forked.once('exit', () => (made.hasEnded = true));
  onTestFinished(() => void forked.kill('SIGKILL'));
  return made;
}

const publish = (topic: string, count: number, from = 0) =>
  kit.scope.run(async () => {
    const { publisher } = kit.room({ relay: false });
    for (let at = from; at < from + count; at += 1) await publisher.publish(topic, String(at), { key: `k${at % 5}` });
  });

test('F08: a relay killed between the acknowledgement and the delete sends the rows again under the same ids', async () => {
  const topics = await Topics.open();
  const topic = await topics.create();
  await publish(topic, 60);
  const owed = (await kit.rows()).map(({ eventId }) => eventId);
  const killed = child({ relay: true, batch: 20, signal: { name: 'SIGKILL', at: 2 } });
  await until(() => killed.hasEnded, { what: 'the relay to be killed', timeoutMs: 30_000 });
  const left = (await kit.rows()).map(({ eventId }) => eventId);
  const sentTwice = idsOf(await topics.read(topic)).filter((id) => left.includes(id!));
  expect(sentTwice.length).toBeGreaterThan(0);
  child({ relay: true });
  await until(async () => (await kit.rows()).length === 0, { what: 'an empty outbox', timeoutMs: 30_000 });
  const ids = idsOf(await topics.read(topic));
  expect(new Set(ids)).toEqual(new Set(owed));
  expect(ids.length).toBe(owed.length + sentTwice.length);
});

test('F11: B64: a relay frozen past its lease leaves no second live copy: its batch at most comes twice, in order per key, and no row comes back or is lost', async () => {
  const topics = await Topics.open();
  const topic = await topics.create();
  await publish(topic, 60);
  const frozen = child({ relay: true, batch: 20, signal: { name: 'SIGSTOP', at: 2 } });
  await until(() => frozen.told.length >= 2, { what: 'the relay to be frozen', timeoutMs: 30_000 });
  await publish(topic, 40, 60);
  const next = child({ relay: true });
  await until(async () => (await kit.rows()).length === 0, { what: 'an empty outbox', timeoutMs: 30_000 });
  frozen.process.kill('SIGCONT');
  await until(() => frozen.told.some((line) => line.includes('LEASE_LOST')), {
    what: 'the frozen one to notice',
    timeoutMs: 20_000,
  });
  await publish(topic, 40, 100);
  await until(async () => (await kit.rows()).length === 0, { what: 'an empty outbox', timeoutMs: 30_000 });
  expect(next.hasEnded).toBe(false);
  const stored = await topics.read(topic);
  expect(stored.length).toBeLessThanOrEqual(140 + 20);
  const firsts = [...new Set(stored.map(({ value }) => Number(value)))];
  expect(firsts.length).toBe(140);
  for (let key = 0; key < 5; key += 1) {
    const ofKey = firsts.filter((value) => value % 5 === key);
    expect(ofKey).toEqual(ofKey.toSorted((a, b) => a - b));
  }
});
