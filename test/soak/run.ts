import { setTimeout as sleep } from 'node:timers/promises';
import { until } from 'nestjs-kafka-idempotency/testing';
import { clock } from './checker.js';
import type { Facts } from './facts.js';
import { effectsOf, importsOf, logOf, outboxOf, outputsOf, parkedOf } from './findings.js';
import type { History } from './history.js';
import { Importer } from './importer.js';
import type { Mode } from './mode.js';
import { Orchestrator } from './orchestrator.js';
import { SoakProducer } from './producer.js';
import { Random } from './random.js';
import { Stage } from './stage.js';
import { Watcher } from './watcher.js';
import { Workers } from './workers.js';
import { CONSUMERS, HAS_OUTBOX, HAS_PARKING, PARTITIONS, WORKERS } from './workload.js';

/** From here on long faults last as long as they do outside. */
const LONG_MINUTES = 5;
const SESSIONS_MS = [1_500, 3_000, 6_000];
const PROGRESS_MS = 10_000;
/** All faults over and nothing sent any more: so long the rest may take. */
const QUIET_BOUND_MS = 120_000;
const REPLAY_BOUND_MS = 60_000;
const OUTBOX_BOUND_MS = 90_000;

export interface Soak {
  readonly seed: number;
  readonly minutes: number;
  readonly mode: Mode;
  readonly only: readonly string[];
  readonly history: History;
  readonly say: (line: string) => void;
  readonly signal: AbortSignal;
}

/** One run from services to facts. */
export async function runSoak(soak: Soak): Promise<Facts> {
  const { seed, say, history } = soak;
  const random = new Random(seed);
  const sessionMs = random.pick(SESSIONS_MS);
  say(`Starting three brokers, a PostgreSQL and ${WORKERS} workers (sessions of ${sessionMs} ms) …`);
  const stage = await Stage.open(sessionMs);
  const producers = new Map(
    CONSUMERS.map(({ topic }, index) => [
      topic,
      new SoakProducer(stage.client('soak-producer'), topic, new Random(seed + index + 1)),
    ]),
  );
  const watcher = new Watcher(stage, producers, HAS_PARKING);
  const importer = new Importer(stage.place, new Random(seed + CONSUMERS.length + 1));
  const lost: string[] = [];
  const workers = new Workers({ place: stage.place, mode: soak.mode }, history.folder, {
    report: (report) => {
      if (report.kind === 'moved') watcher.moved(report.partition);
    },
    lost: (how) => {
      lost.push(`${how} at ${clock(history.now())}`);
      say(`A worker ENDED BY ITSELF: ${how}`);
    },
  });
  try {
    workers.start(WORKERS);
    await until(() => soak.signal.aborted || workers.areAtWork(CONSUMERS.length * PARTITIONS), {
      what: 'the workers to share the partitions',
      timeoutMs: 60_000,
    });
    if (HAS_OUTBOX) importer.start();
    const orchestrator = await underFaults(soak, { stage, workers, producers, watcher, random, sessionMs });
    const lag = await quiet(soak, stage);
    if (HAS_OUTBOX) await importer.finish();
    await emptyOutbox(stage);
    await watcher.stop();
    lost.push(...(await workers.stop()).filter((how) => how !== 'exit code 0' && how !== 'SIGTERM'));
    const facts = await findings(soak, { stage, workers, producers, importer, watcher, orchestrator, lost, lag });
    await history.keep(facts); // before all is closed: whatever goes wrong there, it can be judged
    return facts;
  } finally {
    await Promise.allSettled([
      workers.kill(),
      importer.stop(),
      watcher.stop(),
      ...[...producers.values()].map((producer) => producer.stop()),
    ]);
    await stage.close();
  }
}

interface Crew {
  readonly stage: Stage;
  readonly workers: Workers;
  readonly producers: ReadonlyMap<string, SoakProducer>;
  readonly watcher: Watcher;
}

async function underFaults(
  { minutes, only, history, say, signal }: Soak,
  { stage, workers, producers, watcher, random, sessionMs }: Crew & { random: Random; sessionMs: number },
): Promise<Orchestrator> {
  const arena = { stage, workers, sessionMs, isLong: minutes >= LONG_MINUTES };
  const orchestrator = new Orchestrator(arena, watcher, history, say);
  await Promise.all([...producers.values()].map((producer) => producer.start()));
  watcher.start();
  const progress = setInterval(() => {
    const sent = [...producers.values()].reduce((sum, { acknowledged }) => sum + acknowledged, 0);
    void stage.database.query<{ n: string }>('SELECT count(*) AS n FROM effects').then(
      ({ rows }) => say(`[${clock(history.now())}] sent ${sent}, effects ${rows[0]?.n}, faults ${orchestrator.faults}`),
      () => say(`[${clock(history.now())}] sent ${sent}, the database is down, faults ${orchestrator.faults}`),
    );
  }, PROGRESS_MS);
  try {
    await orchestrator.run(random, history.now() + minutes * 60_000, only, signal);
  } finally {
    clearInterval(progress);
  }
  await stage.heal();
  await Promise.all([...producers.values()].map((producer) => producer.stop()));
  return orchestrator;
}

/** Resolves with the number of records that are not committed: 0, or what is left at the bound. */
async function quiet({ say, history, signal }: Soak, stage: Stage): Promise<number> {
  say(`[${clock(history.now())}] All faults are over; the rest has ${QUIET_BOUND_MS / 1_000} s.`);
  const deadline = performance.now() + QUIET_BOUND_MS;
  for (;;) {
    // A group that is still looking for its coordinator cannot be asked yet.
    const lag = await lagOf(stage).catch(() => undefined);
    if (lag === 0) return 0;
    if (performance.now() > deadline) {
      say(`[${clock(history.now())}] ${lag ?? 'An unknown number of'} records are LEFT.`);
      return lag ?? Infinity;
    }
    await sleep(250, undefined, { signal });
  }
}

async function lagOf(stage: Stage): Promise<number> {
  const [committed, ends] = await Promise.all([stage.committed(), stage.ends()]);
  const offsets = new Map(committed.map(({ topic, partition, offset }) => [`${topic}/${partition}`, offset]));
  return [...ends].reduce((sum, [name, end]) => sum + end - (offsets.get(name) ?? 0), 0);
}

async function findings(
  { seed, minutes, mode, say, history }: Soak,
  {
    stage,
    workers,
    producers,
    importer,
    watcher,
    orchestrator,
    lost,
    lag,
  }: Crew & { importer: Importer; orchestrator: Orchestrator; lost: string[]; lag: number },
): Promise<Facts> {
  const { database } = stage;
  const sends = [...producers.values()].flatMap((producer) => producer.sends);
  const poison = new Set(sends.filter(({ isPoison }) => isPoison).map(({ topic, id }) => `${topic}/${id}`));
  const parked = await parkedOf(database);
  const before = await effectsOf(database);
  const early = before.filter(({ consumer, id }) => poison.has(`${consumer}/${id}`)).map(({ id }) => id);
  if (HAS_PARKING) {
    say(
      `[${clock(history.now())}] ${parked.length} events are parked, ${poison.size} of them poison; they are mended and replayed.`,
    );
    await replay(stage, workers);
  }
  const { rows: balances } = await database.query<Facts['balances'][number]>(
    'SELECT consumer, key, amount::int FROM balances ORDER BY 1, 2',
  );
  const { rows: processed } = await database.query<Facts['processed'][number]>(
    'SELECT consumer, event_id AS id FROM processed_events',
  );
  return {
    seed,
    minutes,
    mode,
    faults: orchestrator.faults,
    byKind: orchestrator.byKind,
    consumers: CONSUMERS.map(({ consumer, topic }) => ({ consumer, topic })),
    hasParking: HAS_PARKING,
    sends,
    log: await logOf(stage),
    effects: await effectsOf(database),
    balances,
    processed,
    parked,
    early,
    leftParked: await parkedOf(database),
    outputs: await outputsOf(stage),
    ...(HAS_OUTBOX && {
      imports: { inputs: importer.inputs, kills: importer.kills, messages: await importsOf(stage) },
    }),
    leftInOutbox: await outboxOf(database),
    committed: await stage.committed(),
    passed: watcher.passed,
    recoveries: orchestrator.recoveries,
    lag,
    lost,
  };
}

/** A worker in which the poison's cause is mended; what was held behind it comes by itself. */
async function replay(stage: Stage, workers: Workers): Promise<void> {
  let outcomes: unknown;
  const worker = workers.mended((report) => {
    if (report.kind === 'replayed') outcomes = report.outcomes;
  });
  try {
    await until(() => outcomes, { what: 'the replay', timeoutMs: REPLAY_BOUND_MS });
    // What does not come back in this time is left, and the checker says so.
    await until(async () => (await parkedOf(stage.database)).length === 0, {
      what: 'the held events',
      timeoutMs: REPLAY_BOUND_MS,
      intervalMs: 250,
    }).catch(() => undefined);
    await emptyOutbox(stage);
  } finally {
    await worker.stop();
  }
}

/** What is left then, the checker tells. */
async function emptyOutbox(stage: Stage): Promise<void> {
  const isEmpty = async () => (await outboxOf(stage.database).catch(() => NaN)) === 0;
  await until(isEmpty, { what: 'an empty outbox', timeoutMs: OUTBOX_BOUND_MS, intervalMs: 250 }).catch(() => undefined);
}
