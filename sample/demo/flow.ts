import { setTimeout as sleep } from 'node:timers/promises';
import { disturb } from './disturbance.js';
import { PARTITIONS, type DemoRecord } from './events.js';
import { appliedRows, databaseTime } from './ledger.js';
import type { Pace } from './pace.js';
import type { DemoProducer } from './producer.js';
import type { Progress } from './progress.js';
import { count } from './report.js';
import type { Screen } from './screen.js';
import type { WorkerEnd } from './worker-process.js';
import type { Workers } from './workers.js';
import type { Workspace } from './workspace.js';

const LOOK_MS = 200;
/** After the last send: how long nothing at all may move before the rest counts as lost. */
export const STALLED_MS = 30_000;

export interface Flow {
  readonly records: readonly DemoRecord[];
  readonly events: number;
  readonly pace: Pace;
  readonly workspace: Workspace;
  readonly workers: Workers;
  readonly producer: DemoProducer;
  readonly screen: Screen;
  readonly signal: AbortSignal;
}

export interface Flowed {
  /** The first send, by the database's clock. */
  readonly since: Date;
  /** Records the group has not committed. More than 0: nothing has moved for {@link STALLED_MS}. */
  readonly behind: number;
  /** How the worker ended that was asked to stop; undefined if nobody was. */
  readonly stopped: WorkerEnd | undefined;
}

/** Sends everything, with workers killed as long as events flow, and waits until the group has committed the last record. */
export async function letFlow(flow: Flow): Promise<Flowed> {
  const { records, pace, workspace, workers, producer, screen, signal } = flow;
  screen.say(whatHappens(flow));
  const since = await databaseTime(workspace.database);
  const look = lookAt(flow);
  const sent = new AbortController();
  const flowing = AbortSignal.any([signal, sent.signal]);
  const disturbed = disturb(workers, pace, flowing);
  await Promise.all([
    producer.send(records, pace.flowMs, signal).finally(() => sent.abort()),
    showWhile(flowing, screen, look),
  ]);
  const behind = await untilHandled(flow, look);
  screen.finished(await look());
  return { since, behind, stopped: await disturbed };
}

function whatHappens({ records, events, pace: { flowMs, killEveryMs } }: Flow): string {
  const seconds = (ms: number) => (ms === 1_000 ? 'second' : `${Math.round(ms / 1_000)} s`);
  return (
    `Sending ${count(events)} events over ${PARTITIONS} partitions, ${count(records.length - events)} of them twice, in ${seconds(flowMs)}. ` +
    `About every ${seconds(killEveryMs)} one worker is killed; one is asked to stop.`
  );
}

function lookAt({ events, workspace, workers, producer }: Flow): () => Promise<Progress> {
  const startedAt = performance.now();
  return async () => ({
    elapsedMs: performance.now() - startedAt,
    events,
    sent: producer.acknowledged.ids.size,
    applied: await appliedRows(workspace.database),
    kills: workers.kills,
    skipped: workers.skipped,
  });
}

async function showWhile(flowing: AbortSignal, screen: Screen, look: () => Promise<Progress>): Promise<void> {
  while (!flowing.aborted) {
    screen.progress(await look());
    await sleep(LOOK_MS, undefined, { signal: flowing }).catch(() => undefined); // the loop looks at it
  }
}

/** Resolves with the number of records that are not committed: 0, or what is left when nothing has moved for long. */
async function untilHandled({ workspace, screen, signal }: Flow, look: () => Promise<Progress>): Promise<number> {
  let seen = '';
  let movedAt = performance.now();
  for (;;) {
    const [behind, progress] = await Promise.all([workspace.recordsBehind(), look()]);
    if (behind === 0) return 0;
    screen.progress(progress);
    const now = `${behind} ${progress.applied} ${progress.skipped}`;
    if (now !== seen) movedAt = performance.now();
    else if (performance.now() - movedAt > STALLED_MS) return behind;
    seen = now;
    await sleep(LOOK_MS, undefined, { signal });
  }
}
