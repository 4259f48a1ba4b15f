import { fork } from 'node:child_process';
import { randomUUID } from 'node:crypto';
import { fileURLToPath } from 'node:url';
import { keyShard } from '#src/kafka/key-shard.js';
import { World } from '../e2e/kit/world.js';
import type { Services } from '../services/services.js';
import { timedEvents, TIMES_EVENTS } from './contenders.js';
import { eventOf, KEYS, PARTITIONS, type ContenderResult, type ContenderSetup } from './workload.js';

const LONGEST_RUN_MS = 240_000;
const SEND_AT_ONCE = 1000;

export interface Run {
  readonly perSecond: number;
  readonly cpuMicrosPerEvent: number;
}

/** One run of one contender on a backlog of its own. Throws if the ledger is wrong afterwards: such a figure is none. */
export async function runContender(id: string, given: number, services: Services): Promise<Run> {
  const events = given * (TIMES_EVENTS[id] ?? 1);
  const world = await World.create({ brokers: services.brokers, databaseUrl: services.databaseUrl });
  try {
    const topic = await world.topic(PARTITIONS);
    await (id === 'relay' ? fillOutbox(world, topic, events) : fill(world, topic, events));
    const { brokers, databaseUrl, schema, group } = world;
    const offsets = await world.admin.fetchTopicOffsets(topic);
    const inFirst = Number(offsets.find(({ partition }) => partition === 0)?.high);
    const setup = { id, brokers, databaseUrl, schema, topic, group, events, inFirst };
    const result = await inProcess(setup);
    await (id === 'relay' ? checkSent(world, topic, events) : checkLedger(world, topic, events, id));
    return {
      // Of all partitions at the speed of those that are timed.
      perSecond: (result.timedEvents / result.ms) * 1000 * (events / timedEvents(setup)),
      cpuMicrosPerEvent: (result.cpuMs * 1000) / result.timedEvents,
    };
  } finally {
    await world.close();
  }
}

async function fill(world: World, topic: string, events: number): Promise<void> {
  for (let sent = 0; sent < events; sent += SEND_AT_ONCE) {
    const messages = Array.from({ length: Math.min(SEND_AT_ONCE, events - sent) }, (_, at) => {
      const id = randomUUID();
      return { key: `key-${(sent + at) % KEYS}`, value: eventOf(id), headers: { 'event-id': id } };
    });
    await world.sendRaw(topic, ...messages);
  }
}

async function fillOutbox(world: World, topic: string, events: number): Promise<void> {
  const ids = Array.from({ length: events }, () => randomUUID());
  const keys = ids.map((_, at) => `key-${at % KEYS}`);
  const shards = keys.map((key) => keyShard(Buffer.from(key)));
  await world.db.query(
    `INSERT INTO outbox_messages (shard, event_id, topic, message_key, message_value, header_names, header_values)
     SELECT shard, id, $1, convert_to(key, 'UTF8'), convert_to(value, 'UTF8'), '{event-id}', ARRAY[convert_to(id, 'UTF8')]
     FROM unnest($2::smallint[], $3::text[], $4::text[], $5::text[]) AS event (shard, id, key, value)`,
    [topic, shards, ids, keys, ids.map(eventOf)],
  );
}

async function checkSent(world: World, topic: string, events: number): Promise<void> {
  const [row] = await world.db.query<[{ left: string }]>('SELECT count(*) AS left FROM outbox_messages');
  const ends = await world.admin.fetchTopicOffsets(topic);
  const sent = ends.reduce((sum, { high }) => sum + Number(high), 0);
  if (row.left !== '0' || sent !== events)
    throw new Error(`relay: ${sent} of ${events} sent, ${row.left} rows left: the figure does not count`);
}

function inProcess(setup: ContenderSetup): Promise<ContenderResult> {
  const child = fork(fileURLToPath(new URL('contender.js', import.meta.url)), {
    stdio: ['ignore', 'inherit', 'inherit', 'ipc'],
  });
  const timer = setTimeout(() => child.kill('SIGKILL'), LONGEST_RUN_MS);
  return new Promise<ContenderResult>((resolve, reject) => {
    let result: ContenderResult | undefined;
    child.once('message', (message) => (result = message as ContenderResult));
    child.once('exit', (code, signal) => {
      if (result !== undefined && code === 0) resolve(result);
      else reject(new Error(`${setup.id} ended with ${signal ?? code} before all ${setup.events} events were handled`));
    });
    child.send(setup);
  }).finally(() => clearTimeout(timer));
}

async function checkLedger(world: World, topic: string, events: number, id: string): Promise<void> {
  const [row] = await world.db.query<[{ all: string; distinct: string }]>(
    'SELECT count(*) AS all, count(DISTINCT event_id) AS distinct FROM effects',
  );
  if (Number(row.all) !== events || Number(row.distinct) !== events) {
    throw new Error(
      `${id}: ${row.all} effects of ${row.distinct} events instead of ${events}: the figure does not count`,
    );
  }
  let committed = 0n;
  for (let partition = 0; partition < PARTITIONS; partition += 1)
    committed += (await world.committed(topic, partition)) ?? 0n;
  if (committed !== BigInt(events))
    throw new Error(`${id}: offsets committed up to ${committed} of ${events}: the figure does not count`);
}
