import { fork } from 'node:child_process';
import { fileURLToPath } from 'node:url';
import { World } from '../e2e/kit/world.js';
import type { Services } from '../services/services.js';
import { newEventId } from './event-ids.js';
import { checkSent, fillOutbox } from './relay.js';
import {
  eventOf,
  eventsOfRecords,
  KEYS,
  timedEvents,
  WARM_UP,
  type ContenderResult,
  type ContenderSetup,
  type Workload,
} from './workload.js';

const LONGEST_RUN_MS = 240_000;
/** The messages of one send: a batch of them stays below what a broker takes. */
const SEND_AT_ONCE = { messages: 1000, bytes: 1_000_000 };

export interface Run {
  readonly perSecond: number;
  readonly cpuMicrosPerEvent: number;
  readonly walBytesPerEvent: number;
  readonly rssAtStartBytes: number;
  readonly peakRssBytes: number;
}

/** One run of one contender on a backlog and tables of its own. */
export async function runContender(id: string, workload: Workload, services: Services): Promise<Run> {
  const world = await World.create({ brokers: services.brokers, databaseUrl: services.databaseUrl });
  try {
    return await runIn(world, id, workload);
  } finally {
    await world.close();
  }
}

/** One run on a backlog and under a group of its own. Throws if the ledger is wrong afterwards: such a figure is none. */
export async function runIn(world: World, id: string, workload: Workload): Promise<Run> {
  const { records, partitions } = workload;
  const { brokers, databaseUrl, schema } = world;
  const topic = await world.topic(partitions);
  const events = await (id === 'relay' ? fillOutbox(world, topic, records) : fill(world, topic, workload));
  const offsets = await world.admin.fetchTopicOffsets(topic);
  const inFirst = Number(offsets.find(({ partition }) => partition === 0)?.high);
  const warmUp = Math.min(WARM_UP, records >> 1);
  const setup = { ...workload, id, brokers, databaseUrl, schema, topic, group: topic, warmUp, inFirst };
  await world.db.query('TRUNCATE effects');
  const walBefore = await walPosition(world);
  const result = await inProcess(setup);
  const walBytes = Number((await walPosition(world)) - walBefore);
  await (id === 'relay' ? checkSent(world, topic, events) : checkLedger(world, setup, events));
  return {
    // Of all partitions at the speed of those that are timed.
    perSecond: (result.timedEvents / result.ms) * 1000 * (records / timedEvents(setup)),
    cpuMicrosPerEvent: (result.cpuMs * 1000) / result.timedEvents,
    walBytesPerEvent: walBytes / records,
    rssAtStartBytes: result.rssAtStartBytes,
    peakRssBytes: result.peakRssBytes,
  };
}

/** Returns how many different events there are. */
async function fill(world: World, topic: string, workload: Workload): Promise<number> {
  const { records, valueBytes, duplicates } = workload;
  const atOnce = Math.max(1, Math.min(SEND_AT_ONCE.messages, Math.floor(SEND_AT_ONCE.bytes / valueBytes)));
  const ids: string[] = [];
  const events = eventsOfRecords(records, duplicates);
  for (let sent = 0; sent < records; sent += atOnce) {
    const messages = events.slice(sent, sent + atOnce).map((event) => {
      const id = (ids[event] ??= newEventId(workload.ids, Date.now()));
      return { key: `key-${event % KEYS}`, value: eventOf(id, valueBytes), headers: { 'event-id': id } };
    });
    await world.sendRaw(topic, ...messages);
  }
  return ids.length;
}

async function walPosition({ db }: World): Promise<bigint> {
  const [{ at }] = await db.query<[{ at: string }]>(`SELECT pg_current_wal_insert_lsn() - '0/0'::pg_lsn AS at`);
  return BigInt(at);
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
      else
        reject(new Error(`${setup.id} ended with ${signal ?? code} before all ${setup.records} records were handled`));
    });
    child.send(setup);
  }).finally(() => clearTimeout(timer));
}

async function checkLedger(world: World, { id, topic, group, records, partitions }: ContenderSetup, events: number) {
  const [row] = await world.db.query<[{ all: string; distinct: string }]>(
    'SELECT count(*) AS all, count(DISTINCT event_id) AS distinct FROM effects',
  );
  if (Number(row.all) !== events || Number(row.distinct) !== events) {
    throw new Error(
      `${id}: ${row.all} effects of ${row.distinct} events instead of ${events}: the figure does not count`,
    );
  }
  let committed = 0n;
  for (let partition = 0; partition < partitions; partition += 1)
    committed += (await world.committed(topic, partition, group)) ?? 0n;
  if (committed !== BigInt(records))
    throw new Error(`${id}: offsets committed up to ${committed} of ${records}: the figure does not count`);
}
