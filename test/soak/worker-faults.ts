import { setTimeout as sleep } from 'node:timers/promises';
import { until } from 'nestjs-kafka-idempotency/testing';
import { seconds, type Arena, type Fault, type PlannedFault } from './fault.js';
import type { Random } from './random.js';
import { CONSUMERS, IDLE_IN_TRANSACTION_MS } from './workload.js';

/** Kills, freezes and stops of workers, and members that come and go. Progress within two sessions of a worker's death. */
export const WORKER_FAULTS: readonly Fault[] = [
  { kind: 'worker-kill', weight: 8, plan: kill },
  { kind: 'worker-freeze', weight: 4, plan: freeze },
  { kind: 'worker-stop', weight: 2, plan: stop },
  { kind: 'kill-burst', weight: 1, plan: burst },
  { kind: 'rebalance', weight: 3, plan: (random, arena) => rebalance(arena, 1, random.between(1_000, 3_000)) },
  { kind: 'rebalance-storm', weight: 1, plan: (random, arena) => rebalance(arena, 4, random.between(1_000, 2_000)) },
];

function kill(random: Random, { workers, sessionMs }: Arena): PlannedFault {
  const seat = random.between(0, workers.count - 1);
  return {
    what: `worker ${seat}`,
    counts: 1,
    boundMs: 2 * sessionMs,
    async inject() {
      const worker = workers.at(seat);
      const { partitions } = worker;
      await worker.kill();
      return { partitions };
    },
  };
}

/** A zombie: others take its partitions over, then it wakes with an open transaction, and thinks they are its own. */
function freeze(random: Random, { workers, sessionMs }: Arena): PlannedFault {
  const seat = random.between(0, workers.count - 1);
  const ms = sessionMs + random.between(500, 2_000);
  return {
    what: `worker ${seat} for ${seconds(ms)}`,
    counts: 1,
    // Its open transaction holds a claim until PostgreSQL ends its session.
    boundMs: 2 * sessionMs + IDLE_IN_TRANSACTION_MS,
    async inject() {
      const worker = workers.at(seat);
      const { partitions } = worker;
      const since = performance.now();
      worker.freeze();
      await sleep(ms);
      worker.thaw();
      return { partitions, since };
    },
  };
}

function stop(random: Random, { workers, sessionMs }: Arena): PlannedFault {
  const seat = random.between(0, workers.count - 1);
  return {
    what: `worker ${seat}, by SIGTERM`,
    counts: 1,
    boundMs: 2 * sessionMs,
    async inject() {
      const worker = workers.at(seat);
      const { partitions } = worker;
      const how = await worker.stop();
      if (how !== 'exit code 0' && how !== 'SIGTERM')
        throw new Error(`The worker that was asked to stop ended: ${how}`);
      return { partitions };
    },
  };
}

/** F12: 20 kills in a minute. */
function burst(random: Random, { workers, sessionMs, isLong }: Arena): PlannedFault {
  const kills = isLong ? 20 : 5;
  const steps = Array.from({ length: kills }, () => ({
    seat: random.between(0, workers.count - 1),
    waitMs: random.between(2_000, 4_000),
  }));
  return {
    what: `${kills} workers, one after another`,
    counts: kills,
    // The last ones have to start first.
    boundMs: 2 * sessionMs + 5_000,
    async inject() {
      for (const { seat, waitMs } of steps) {
        await workers.at(seat).kill();
        await sleep(waitMs);
      }
    },
  };
}

/** F32: a member that joins, is given partitions, does nothing with them, and leaves. */
function rebalance({ stage, sessionMs }: Arena, times: number, stayMs: number): PlannedFault {
  return {
    what: `a member joins and leaves${times === 1 ? '' : ` ${times} times`}, staying ${seconds(stayMs)}`,
    counts: times,
    boundMs: 2 * sessionMs,
    async inject() {
      for (let time = 0; time < times; time++) {
        const member = stage.client('soak-guest').consumer({
          groupId: stage.group,
          sessionTimeout: sessionMs,
          heartbeatInterval: Math.round(sessionMs / 5),
          maxWaitTimeInMs: 100,
          retry: { restartOnFailure: () => Promise.resolve(false) },
        });
        let hasJoined = false;
        member.on(member.events.GROUP_JOIN, () => (hasJoined = true));
        await member.connect();
        await member.subscribe({ topics: [CONSUMERS[0].topic] });
        await member.run({ autoCommit: false, eachBatchAutoResolve: false, eachBatch: () => Promise.resolve() });
        // What does not join in this time is not let in by the others; it has troubled them all the same.
        await until(() => hasJoined, { what: 'the guest to join', timeoutMs: 20_000 }).catch(() => undefined);
        await sleep(stayMs);
        await member.disconnect();
      }
    },
  };
}
