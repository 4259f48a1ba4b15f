import { setTimeout as sleep } from 'node:timers/promises';
import { until } from 'nestjs-kafka-idempotency/testing';
import { seconds, type Arena, type Fault, type PlannedFault } from './fault.js';
import type { Random } from './random.js';
import { HANDLER_TIMEOUT_MS } from './workload.js';

/** Progress within this time of a restart of the database, or of the end of a bad network. */
const BOUND_MS = 5_000;
/** What was sent into a black hole is given up only when the handler's time is over. */
const SILENT_BOUND_MS = BOUND_MS + HANDLER_TIMEOUT_MS;

/** Restarts, dead sessions, lost answers, a full disk, and the network in front of PostgreSQL. */
export const DATABASE_FAULTS: readonly Fault[] = [
  { kind: 'postgres-restart-fast', weight: 2, plan: (_, arena) => restart(arena, 'fast') },
  { kind: 'postgres-restart-immediate', weight: 2, plan: (_, arena) => restart(arena, 'immediate') },
  { kind: 'postgres-down', weight: 1, plan: down },
  { kind: 'postgres-failover', weight: 1, plan: failover },
  { kind: 'postgres-terminate', weight: 3, plan: terminate },
  { kind: 'postgres-reset', weight: 3, plan: reset },
  { kind: 'postgres-blackhole', weight: 2, plan: (random, arena) => blackhole(random, arena, 'both') },
  { kind: 'postgres-half-open', weight: 2, plan: (random, arena) => blackhole(random, arena, 'toClient') },
  { kind: 'postgres-partition', weight: 1, plan: partition },
  { kind: 'postgres-slow', weight: 1, plan: slow },
  { kind: 'commit-answer-lost', weight: 4, plan: loseCommitAnswers },
  { kind: 'disk-full', weight: 2, plan: diskFull },
];

/** F22. */
function restart({ stage }: Arena, mode: 'fast' | 'immediate'): PlannedFault {
  return { what: mode, counts: 1, boundMs: BOUND_MS, inject: () => stage.postgres.restart(mode) };
}

function down(random: Random, { stage }: Arena): PlannedFault {
  const ms = random.between(3_000, 8_000);
  return {
    what: `killed, for ${seconds(ms)}`,
    counts: 1,
    boundMs: BOUND_MS,
    async inject() {
      await stage.postgres.kill();
      await sleep(ms);
      await stage.postgres.start();
    },
  };
}

/** F24. */
function failover(random: Random, { stage }: Arena): PlannedFault {
  const ms = random.between(500, 3_000);
  return {
    what: `a synchronous standby takes over, after ${seconds(ms)}`,
    counts: 1,
    boundMs: BOUND_MS,
    async inject() {
      const standby = await stage.postgres.addStandby();
      await sleep(ms); // so long each commit waits for the standby
      await stage.postgres.failOver(standby);
    },
  };
}

/** F23. */
function terminate(random: Random, { stage }: Arena): PlannedFault {
  const waitsMs = Array.from({ length: random.between(1, 10) }, () => random.between(5, 200));
  return {
    what: `${waitsMs.length} times about half of the sessions`,
    counts: 0,
    boundMs: BOUND_MS,
    async inject() {
      for (const waitMs of waitsMs) {
        await stage.database.query(
          `SELECT pg_terminate_backend(pid) FROM pg_stat_activity
           WHERE backend_type = 'client backend' AND pid <> pg_backend_pid() AND random() < 0.5`,
        );
        await sleep(waitMs);
      }
    },
  };
}

function reset(random: Random, { stage }: Arena): PlannedFault {
  const times = random.between(1, 3);
  return {
    what: times === 1 ? 'once' : `${times} times`,
    counts: times,
    boundMs: BOUND_MS,
    async inject() {
      for (let time = 0; time < times; time++) {
        stage.postgresProxy.reset();
        await sleep(200);
      }
    },
  };
}

function blackhole(random: Random, { stage, sessionMs }: Arena, direction: 'both' | 'toClient'): PlannedFault {
  const ms = sessionMs + random.between(500, 3_000);
  return {
    what: `${direction === 'both' ? 'both ways' : 'answers only'}, for ${seconds(ms)}`,
    counts: 1,
    boundMs: SILENT_BOUND_MS,
    async inject() {
      stage.postgresProxy.blackhole(direction);
      await sleep(ms);
      await stage.postgresProxy.heal();
    },
  };
}

/** F19. */
function partition(random: Random, { stage, isLong }: Arena): PlannedFault {
  const ms = isLong ? 60_000 : random.between(4_000, 8_000);
  return {
    what: `no way to the database for ${seconds(ms)}`,
    counts: 1,
    boundMs: BOUND_MS,
    async inject() {
      stage.postgresProxy.refuse();
      stage.postgresProxy.reset();
      await sleep(ms);
      await stage.postgresProxy.heal();
    },
  };
}

function slow(random: Random, { stage }: Arena): PlannedFault {
  const ms = random.between(3_000, 8_000);
  return {
    what: `20 ms and up to 80 more, for ${seconds(ms)}`,
    counts: 0,
    boundMs: SILENT_BOUND_MS,
    async inject() {
      stage.postgresProxy.delay(10, 40);
      await sleep(ms);
      await stage.postgresProxy.heal();
    },
  };
}

/** F05, both branches: done and not told, and never done. */
function loseCommitAnswers(random: Random, { stage }: Arena): PlannedFault {
  const steps = Array.from({ length: random.between(2, 6) }, () => random.chance(0.5));
  return {
    what: `${steps.length} COMMITs`,
    counts: steps.length,
    boundMs: BOUND_MS,
    async inject() {
      let counts = 0;
      for (const isDone of steps) {
        const { postgresProxy } = stage;
        const fault = isDone ? postgresProxy.swallowCommitReply() : postgresProxy.cutBeforeCommit();
        await until(() => fault.hits > 0, { what: 'a COMMIT', timeoutMs: 5_000 }).catch(() => undefined);
        fault.disarm();
        counts += fault.hits;
      }
      return { counts };
    },
  };
}

/** F26. */
function diskFull(random: Random, { stage }: Arena): PlannedFault {
  const times = random.between(5, 40);
  const statement = random.pick([/^INSERT INTO (effects|balances)/, /^COMMIT/, /processed_events/]);
  return {
    what: `${times} times at ${statement.source}`,
    counts: 0,
    boundMs: SILENT_BOUND_MS,
    async inject() {
      const error = { code: '53100', message: 'could not extend file: No space left on device' };
      const fault = stage.postgresProxy.answerWithError(statement, error, { times });
      await until(() => fault.hits >= times, { what: 'the errors', timeoutMs: 5_000 }).catch(() => undefined);
      fault.disarm();
    },
  };
}
