import { setTimeout as sleep } from 'node:timers/promises';
import { BROKER_FAULTS } from './broker-faults.js';
import { clock } from './checker.js';
import { DATABASE_FAULTS } from './database-faults.js';
import type { Recovery } from './facts.js';
import { seconds, type Arena, type Fault, type PlannedFault, type Struck } from './fault.js';
import type { History } from './history.js';
import type { Random } from './random.js';
import type { Watcher } from './watcher.js';
import { WORKER_FAULTS } from './worker-faults.js';
import { CONSUMERS, PARTITIONS } from './workload.js';

export const FAULTS: readonly Fault[] = [...WORKER_FAULTS, ...BROKER_FAULTS, ...DATABASE_FAULTS];

const ALL_PARTITIONS = CONSUMERS.flatMap(({ topic }) =>
  Array.from({ length: PARTITIONS }, (_, number) => `${topic}/${number}`),
);

/** Behind its bound it is waited for so many times longer, so that the next fault does not blur this one. */
const PATIENCE = 3;
const LOOK_MS = 20;

/** Injects one fault after another, each once the one before is recovered from, and keeps account of how long that took. */
export class Orchestrator {
  faults = 0;
  readonly byKind: Record<string, number> = {};
  readonly recoveries: Recovery[] = [];

  constructor(
    private readonly arena: Arena,
    private readonly watcher: Watcher,
    private readonly history: History,
    private readonly say: (line: string) => void,
  ) {}

  async run(random: Random, untilMs: number, only: readonly string[], signal: AbortSignal): Promise<void> {
    const fit = FAULTS.filter(({ longOnly = false }) => this.arena.isLong || !longOnly);
    const choices = only.length === 0 ? fit : FAULTS.filter(({ kind }) => only.includes(kind));
    while (this.history.now() < untilMs && !signal.aborted) {
      const { kind, plan } = random.weighted(choices);
      await this.#inject(kind, plan(random, this.arena), signal);
      await sleep(random.between(200, 2_000), undefined, { signal });
    }
  }

  async #inject(kind: string, fault: PlannedFault, signal: AbortSignal): Promise<void> {
    const at = this.history.now();
    this.history.note('fault', { fault: kind, what: fault.what });
    const struck: Struck = (await fault.inject()) ?? {};
    this.faults += struck.counts ?? fault.counts;
    this.byKind[kind] = (this.byKind[kind] ?? 0) + 1;
    const partitions = struck.partitions?.length ? struck.partitions : ALL_PARTITIONS;
    let ms = await this.#recovered(struck.since ?? performance.now(), partitions, fault.boundMs, signal);
    if (fault.restore) {
      await fault.restore();
      const again = await this.#recovered(performance.now(), ALL_PARTITIONS, fault.boundMs, signal);
      ms = ms === undefined || again === undefined ? undefined : Math.max(ms, again);
    }
    const recovery: Recovery = { fault: kind, at, boundMs: fault.boundMs, ...(ms !== undefined && { ms }) };
    this.recoveries.push(recovery);
    this.history.note('recovery', recovery);
    this.say(`[${clock(at)}] ${kind.padEnd(26)} ${fault.what} → ${told(recovery)}`);
  }

  /** Milliseconds until each of the partitions has moved; undefined if one does not. */
  async #recovered(
    since: number,
    partitions: readonly string[],
    boundMs: number,
    signal: AbortSignal,
  ): Promise<number | undefined> {
    const givenUpAt = Math.max(performance.now(), since) + PATIENCE * boundMs;
    for (;;) {
      const still = this.watcher.stillSince(since, partitions);
      if (still.length === 0) return Math.round(performance.now() - since);
      if (performance.now() > givenUpAt) {
        this.history.note('stuck', { partitions: still });
        return undefined;
      }
      await sleep(LOOK_MS, undefined, { signal });
    }
  }
}

function told({ ms, boundMs }: Recovery): string {
  if (ms === undefined) return `NOT RECOVERED in ${seconds(PATIENCE * boundMs)}`;
  return ms <= boundMs ? `moving after ${seconds(ms)}` : `moving after ${seconds(ms)}, LATER than ${seconds(boundMs)}`;
}
