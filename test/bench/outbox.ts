import { fork } from 'node:child_process';
import { fileURLToPath } from 'node:url';
import { World } from '../e2e/kit/world.js';
import type { Services } from '../services/services.js';
import type { BenchArguments } from './arguments.js';
import { markdown, median, round2 } from './figures.js';
import type { Drain, Latencies, OutboxSetup } from './outbox-process.js';
import { checkSent, fillOutbox } from './relay.js';
import { PARTITIONS, POOL, VALUE_BYTES } from './workload.js';

const PARTS = 10;
/** The second: in the first one code is compiled and the heap grows. */
const EARLY = 1;

interface DrainRow {
  /** Another session holds a transaction open, whose snapshot keeps every deleted row. */
  readonly beside: 'nothing' | 'an open transaction';
  readonly perSecond: number;
  readonly earlyPart: number;
  readonly lastPart: number;
  /** Of the last part's speed to the early one's. */
  readonly ratio: number;
  readonly cpuMicrosPerEvent: number;
  readonly rssBeforeMb: number;
  readonly rssEarlyMb: number;
  readonly rssLastMb: number;
  readonly runs: readonly number[];
}

interface OutboxFigures {
  readonly latencyMs: { readonly median: number; readonly p99: number; readonly runs: readonly number[] };
  readonly drains: readonly DrainRow[];
  /** Of the rounds' speeds beside an open transaction to those without. */
  readonly openTransactionRatio: number;
}

/** From commit to topic when idle, and a backlog from beginning to end. */
export async function measureOutbox(
  { given, runs, backlog }: Extract<BenchArguments, { kind: 'outbox' }>,
  services: Services,
): Promise<OutboxFigures> {
  console.log(
    `${given.events} single events, then a backlog of ${backlog} rows; ${VALUE_BYTES} bytes, ${PARTITIONS} partitions, ${runs} rounds, each run in a fresh process\n`,
  );
  const [latencies, alone, beside]: [number[][], Drain[], Drain[]] = [[], [], []];
  for (let round = 1; round <= runs; round += 1) {
    latencies.push([...(await latencyOf(given.events, services))]);
    alone.push(await drainOf(backlog, services, false));
    beside.push(await drainOf(backlog, services, true));
    const speeds = [alone, beside].map((drains) => Math.round(speedOf(drains.at(-1)!, backlog)));
    console.log(
      `round ${round}  ${round2(median(latencies.at(-1)!))} ms; ${speeds[0]}/s, ${speeds[1]}/s beside an open transaction`,
    );
  }
  const all = latencies.flat();
  const figures = {
    latencyMs: {
      median: round2(median(all)),
      p99: round2(quantile(all, 0.99)),
      runs: latencies.map((of) => round2(median(of))),
    },
    drains: [rowOf('nothing', alone, backlog), rowOf('an open transaction', beside, backlog)],
    openTransactionRatio: round2(
      median(beside.map((drain, at) => speedOf(drain, backlog) / speedOf(alone[at]!, backlog))),
    ),
  };
  tell(figures);
  return figures;
}

async function latencyOf(events: number, services: Services): Promise<Latencies> {
  return inWorld(services, async (world, topic) => {
    const found = await inProcess<Latencies>({ ...setupOf(world, topic), measures: 'latency', events });
    return found;
  });
}

function drainOf(backlog: number, services: Services, isHeldOpen: boolean): Promise<Drain> {
  return inWorld(services, async (world, topic) => {
    await fillOutbox(world, topic, backlog);
    const session = world.db.createQueryRunner();
    if (isHeldOpen) {
      await session.startTransaction('REPEATABLE READ');
      await session.query('SELECT pg_current_xact_id(), (SELECT max(id) FROM outbox_messages)');
    }
    const drain = await inProcess<Drain>({ ...setupOf(world, topic), measures: 'drain', backlog, parts: PARTS });
    if (isHeldOpen) await session.rollbackTransaction();
    await session.release();
    await checkSent(world, topic, backlog);
    return drain;
  });
}

async function inWorld<T>(services: Services, work: (world: World, topic: string) => Promise<T>): Promise<T> {
  const world = await World.create({ brokers: services.brokers, databaseUrl: services.databaseUrl });
  try {
    const topic = await world.topic(PARTITIONS);
    const found = await work(world, topic);
    await world.admin.deleteTopics({ topics: [topic] }); // a backlog is half a gigabyte
    return found;
  } finally {
    await world.close();
  }
}

function setupOf({ brokers, databaseUrl, schema, group }: World, topic: string) {
  return { brokers, databaseUrl, schema, group, topic, pool: POOL };
}

function inProcess<T>(setup: OutboxSetup): Promise<T> {
  const child = fork(fileURLToPath(new URL('outbox-process.js', import.meta.url)), {
    stdio: ['ignore', 'inherit', 'inherit', 'ipc'],
  });
  return new Promise((resolve, reject) => {
    let result: T | undefined;
    child.once('message', (message) => (result = message as T));
    child.once('exit', (code, signal) => {
      if (result !== undefined && code === 0) resolve(result);
      else reject(new Error(`The process that measures ${setup.measures} ended with ${signal ?? code}`));
    });
    child.send(setup);
  });
}

function speedOf({ parts }: Drain, backlog: number): number {
  return (backlog / parts.at(-1)!.ms) * 1000;
}

function rowOf(beside: DrainRow['beside'], drains: readonly Drain[], backlog: number): DrainRow {
  const middle = (of: (drain: Drain) => number) => median(drains.map(of));
  const part = backlog / PARTS;
  const speedIn = ({ parts }: Drain, nr: number) => part / (parts[nr]!.ms - parts[nr - 1]!.ms);
  const early = (drain: Drain) => speedIn(drain, EARLY);
  const last = (drain: Drain) => speedIn(drain, PARTS - 1);
  return {
    beside,
    perSecond: Math.round(middle((drain) => speedOf(drain, backlog))),
    earlyPart: Math.round(middle(early) * 1000),
    lastPart: Math.round(middle(last) * 1000),
    ratio: round2(middle((drain) => last(drain) / early(drain))),
    cpuMicrosPerEvent: Math.round(middle(({ parts }) => (parts.at(-1)!.cpuMs * 1000) / backlog)),
    rssBeforeMb: megabytes(middle(({ rssBeforeBytes }) => rssBeforeBytes)),
    rssEarlyMb: megabytes(middle(({ parts }) => parts[EARLY]!.peakRssBytes)),
    rssLastMb: megabytes(middle(({ parts }) => parts.at(-1)!.peakRssBytes)),
    runs: drains.map((drain) => Math.round(speedOf(drain, backlog))),
  };
}

function tell({ latencyMs, drains, openTransactionRatio }: OutboxFigures): void {
  console.log(`\nfrom commit to acknowledgement when idle: median ${latencyMs.median} ms, p99 ${latencyMs.p99} ms\n`);
  const headings = ['beside', 'rows/s (median)', 'second tenth', 'last tenth', 'ratio', 'CPU µs/row'];
  const memory = ['RSS MB before', 'peak in the second tenth', 'in the last', 'runs'];
  const line = (row: DrainRow) => [
    row.beside,
    row.perSecond,
    row.earlyPart,
    row.lastPart,
    row.ratio,
    row.cpuMicrosPerEvent,
    row.rssBeforeMb,
    row.rssEarlyMb,
    row.rssLastMb,
    row.runs.join(', '),
  ];
  console.log(markdown([...headings, ...memory], drains.map(line)));
  console.log(`\nbeside an open transaction to without: ${openTransactionRatio}`);
}

function quantile(numbers: readonly number[], share: number): number {
  const sorted = numbers.toSorted((a, b) => a - b);
  return sorted[Math.min(sorted.length - 1, Math.floor(sorted.length * share))]!;
}

function megabytes(bytes: number): number {
  return Math.round(bytes / 1_000_000);
}
