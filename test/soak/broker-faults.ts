import { setTimeout as sleep } from 'node:timers/promises';
import { until, type KafkaProxy } from 'nestjs-kafka-idempotency/testing';
import { seconds, type Arena, type Fault, type PlannedFault } from './fault.js';
import type { Random } from './random.js';
import type { Stage } from './stage.js';
import { CONSUMERS, PARTITIONS } from './workload.js';

/** Progress within this time of the kill of one broker of three, or of the end of a bad network. */
const BOUND_MS = 30_000;
/** After a kill of all: elections, the group's coordinator, and clients that have long given up. */
const ALL_BOUND_MS = 60_000;
/** What is buffered in the workers may still move after a broker has died; then the rest shows. */
const BUFFERED_MS = 1_000;

const ILLEGAL_GENERATION = 22;

/** Brokers that die, stand still or lose their leaderships, and the networks in front of them. */
export const BROKER_FAULTS: readonly Fault[] = [
  { kind: 'broker-kill', weight: 2, plan: kill },
  { kind: 'broker-freeze', weight: 1, plan: freeze },
  { kind: 'broker-stop', weight: 1, plan: stop },
  { kind: 'brokers-down', weight: 1, longOnly: true, plan: allDown },
  { kind: 'leader-moves', weight: 3, plan: leaderMoves },
  { kind: 'kafka-reset', weight: 3, plan: reset },
  { kind: 'kafka-blackhole', weight: 2, plan: (random, arena) => blackhole(random, arena, 'both') },
  { kind: 'kafka-half-open', weight: 2, plan: (random, arena) => blackhole(random, arena, 'toClient') },
  { kind: 'kafka-partition', weight: 1, plan: partition },
  { kind: 'kafka-slow', weight: 1, plan: slow },
  { kind: 'kafka-throttle', weight: 1, plan: throttle },
  { kind: 'kafka-cut', weight: 2, plan: cut },
  { kind: 'commit-refused', weight: 2, plan: refuseCommits },
];

function kill(random: Random, { stage }: Arena): PlannedFault {
  const id = random.between(1, 3);
  const node = stage.kafka.kafka.node(id);
  return down(
    `node ${id}`,
    () => node.kill(),
    () => node.start(),
  );
}

function stop(random: Random, { stage }: Arena): PlannedFault {
  const id = random.between(1, 3);
  const node = stage.kafka.kafka.node(id);
  return down(
    `node ${id}`,
    () => node.stop(),
    () => node.start(),
  );
}

function freeze(random: Random, { stage }: Arena): PlannedFault {
  const id = random.between(1, 3);
  const node = stage.kafka.kafka.node(id);
  return down(
    `node ${id}`,
    () => Promise.resolve(node.pause()),
    () => Promise.resolve(node.resume()),
  );
}

/** The others have to go on without it; then it comes back. */
function down(what: string, strike: () => Promise<void>, restore: () => Promise<void>): PlannedFault {
  return {
    what,
    counts: 1,
    boundMs: BOUND_MS,
    async inject() {
      await strike();
      await sleep(BUFFERED_MS);
    },
    restore,
  };
}

/** F16. */
function allDown(_: Random, { stage }: Arena): PlannedFault {
  return {
    what: 'all brokers for two minutes',
    counts: 3,
    boundMs: ALL_BOUND_MS,
    async inject() {
      await stage.kafka.kafka.kill();
      await sleep(120_000);
      await stage.kafka.kafka.start();
    },
  };
}

/** By a new order of the replicas: the brokers then make the first of them the leader. */
function leaderMoves(random: Random, { stage }: Arena): PlannedFault {
  const moved = CONSUMERS.map(({ topic }) => ({
    topic,
    partitionAssignment: Array.from({ length: PARTITIONS }, (_, number) => ({
      partition: number,
      replicas: shuffled([1, 2, 3], random),
    })),
  }));
  return {
    what: `${CONSUMERS.length * PARTITIONS} partitions dealt anew`,
    counts: 0,
    boundMs: BOUND_MS,
    async inject() {
      const wanted = new Map<string, number>();
      for (const { topic, partitionAssignment } of moved)
        for (const { partition: number, replicas } of partitionAssignment)
          wanted.set(`${topic}/${number}`, replicas[0] as number);
      await stage.withAdmin((admin) => admin.alterPartitionReassignments({ topics: moved }));
      // A broker that has just come back may lead nothing yet; the next fault need not wait for it.
      await until(() => areLedBy(stage, wanted), { what: 'the leaders', timeoutMs: 15_000, intervalMs: 500 }).catch(
        () => undefined,
      );
    },
  };
}

async function areLedBy(stage: Stage, wanted: ReadonlyMap<string, number>): Promise<boolean> {
  const topics = CONSUMERS.map(({ topic }) => topic);
  const found = await stage.withAdmin((admin) => admin.fetchTopicMetadata({ topics }));
  return found.topics.every(({ name, partitions }) =>
    partitions.every(({ partitionId, leader }) => wanted.get(`${name}/${partitionId}`) === leader),
  );
}

function shuffled<T>(list: readonly T[], random: Random): T[] {
  const left = [...list];
  return list.map(() => left.splice(random.between(0, left.length - 1), 1)[0] as T);
}

function reset(random: Random, { stage }: Arena): PlannedFault {
  const proxies = someProxies(random, stage);
  return {
    what: namesOf(proxies, stage),
    counts: 1,
    boundMs: BOUND_MS,
    inject: () => Promise.resolve(proxies.forEach((proxy) => proxy.reset())),
  };
}

/** F18 with all brokers; F20 with one direction. */
function blackhole(random: Random, { stage, sessionMs }: Arena, direction: 'both' | 'toClient'): PlannedFault {
  const proxies = someProxies(random, stage);
  const ms = sessionMs + random.between(500, 3_000);
  return {
    what: `${namesOf(proxies, stage)}, ${direction === 'both' ? 'both ways' : 'answers only'}, for ${seconds(ms)}`,
    counts: 1,
    boundMs: BOUND_MS,
    inject: () => during(proxies, ms, (proxy) => proxy.blackhole(direction)),
  };
}

function partition(random: Random, { stage, sessionMs, isLong }: Arena): PlannedFault {
  const ms = isLong ? 30_000 : sessionMs + random.between(500, 3_000);
  return {
    what: `no way to any broker for ${seconds(ms)}`,
    counts: 1,
    boundMs: BOUND_MS,
    inject: () =>
      during(stage.kafka.proxies, ms, (proxy) => {
        proxy.refuse();
        proxy.reset();
      }),
  };
}

/** F21. */
function slow(random: Random, { stage }: Arena): PlannedFault {
  const ms = random.between(4_000, 10_000);
  return {
    what: `500 ms and up to 200 more, for ${seconds(ms)}`,
    counts: 0,
    boundMs: BOUND_MS,
    inject: () => during(stage.kafka.proxies, ms, (proxy) => proxy.delay(250, 100)),
  };
}

function throttle(random: Random, { stage }: Arena): PlannedFault {
  const proxies = [random.pick(stage.kafka.proxies)];
  const ms = random.between(4_000, 10_000);
  return {
    what: `${namesOf(proxies, stage)}, 1 KB/s for ${seconds(ms)}`,
    counts: 0,
    boundMs: BOUND_MS,
    inject: () => during(proxies, ms, (proxy) => proxy.throttle(1_024)),
  };
}

function cut(random: Random, { stage }: Arena): PlannedFault {
  const proxy = random.pick(stage.kafka.proxies);
  const direction = random.pick(['toServer', 'toClient'] as const);
  const bytes = random.between(1, 20_000);
  return {
    what: `${namesOf([proxy], stage)}, ${direction} after ${bytes} bytes`,
    counts: 1,
    boundMs: BOUND_MS,
    async inject() {
      const armed = proxy.cutAfter(bytes, direction);
      const first = await Promise.race([armed.hit.then(() => 'hit'), sleep(3_000, 'too little was sent')]);
      armed.disarm();
      return { counts: first === 'hit' ? 1 : 0 };
    },
  };
}

function refuseCommits(random: Random, { stage }: Arena): PlannedFault {
  const times = random.between(1, 3);
  return {
    what: `ILLEGAL_GENERATION ${times} times`,
    counts: 0,
    boundMs: BOUND_MS,
    async inject() {
      const errors = stage.kafka.proxies.map((proxy) => proxy.answerCommitWith(ILLEGAL_GENERATION, { times }));
      await until(() => errors.some(({ hits }) => hits > 0), { what: 'a commit', timeoutMs: 5_000 }).catch(
        () => undefined, // nobody committed in this time
      );
      for (const error of errors) error.disarm();
    },
  };
}

async function during(proxies: readonly KafkaProxy[], ms: number, strike: (proxy: KafkaProxy) => void): Promise<void> {
  proxies.forEach(strike);
  await sleep(ms);
  await Promise.all(proxies.map((proxy) => proxy.heal()));
}

function someProxies(random: Random, stage: Stage): readonly KafkaProxy[] {
  const one = random.pick(stage.kafka.proxies);
  return random.chance(0.3) ? stage.kafka.proxies : [one];
}

function namesOf(proxies: readonly KafkaProxy[], stage: Stage): string {
  const all = stage.kafka.proxies;
  return proxies.length === all.length ? 'all nodes' : `node ${all.indexOf(proxies[0] as KafkaProxy) + 1}`;
}
