import { World } from '../e2e/kit/world.js';
import type { Services, ServicesOptions } from '../services/services.js';
import type { BenchArguments, Given } from './arguments.js';
import { workloadOf } from './contenders.js';
import type { IdVersion } from './event-ids.js';
import { markdown, median, round2 } from './figures.js';
import { OldEvents } from './old-events.js';
import { runIn, type Run } from './run.js';

const MODES = ['ours-default', 'ours-shared', 'ours-batch'];

/** No run is to have a checkpoint in its middle because of what it writes, or what the filling wrote. */
export const GROWTH_SERVICES: ServicesOptions = {
  postgres: { settings: { max_wal_size: '8GB', checkpoint_timeout: '30min' } },
};

export interface GrowthRow {
  readonly ids: IdVersion;
  /** In the table before the first of these runs; each run adds its own. */
  readonly rows: number;
  readonly id: string;
  readonly perSecond: number;
  /** To the speed at the first size. */
  readonly ratio: number;
  readonly walBytesPerEvent: number;
  /** With its index; null of an empty table. */
  readonly bytesPerRow: number | null;
  readonly runs: readonly number[];
}

/** How the modes do while processed_events grows. */
export async function grow(
  { given, runs, rows, ids }: Extract<BenchArguments, { kind: 'growth' }>,
  services: Services,
): Promise<{ growth: GrowthRow[] }> {
  await OldEvents.checkDisk(Math.max(...rows), services);
  console.log(`${given.events} records in ours-default, ${runs} rounds, a checkpoint before each run\n`);
  const growth: GrowthRow[] = [];
  for (const version of ids) growth.push(...(await growWith(version, { given, runs, rows }, services)));
  const headings = ['ids', 'rows', 'row', 'events/s (median)', 'ratio', 'WAL bytes/event', 'bytes/row', 'runs'];
  console.log(
    `\n${markdown(
      headings,
      growth.map((row) => [
        row.ids,
        row.rows,
        row.id,
        row.perSecond,
        row.ratio,
        row.walBytesPerEvent,
        row.bytesPerRow,
        row.runs.join(', '),
      ]),
    )}`,
  );
  return { growth };
}

async function growWith(
  ids: IdVersion,
  { given, runs, rows }: { given: Given; runs: number; rows: readonly number[] },
  services: Services,
): Promise<GrowthRow[]> {
  const world = await World.create({ brokers: services.brokers, databaseUrl: services.databaseUrl });
  try {
    const table = new OldEvents(world.db, ids);
    const found: GrowthRow[] = [];
    for (const size of rows) {
      const startedAt = performance.now();
      await table.fillWith(size);
      const bytesPerRow = await table.bytesPerRow(size);
      console.log(`${ids}: ${size} rows after ${Math.round((performance.now() - startedAt) / 1000)} s`);
      const rounds = new Map<string, Run[]>(MODES.map((id) => [id, []]));
      for (let round = 1; round <= runs; round += 1) {
        for (const id of MODES) {
          if (size === 0) await table.fillWith(0);
          await table.checkpoint();
          const run = await runIn(world, id, { ...workloadOf(id, given), ids });
          rounds.get(id)!.push(run);
          console.log(`${ids}: ${size} rows, round ${round}  ${id.padEnd(12)} ${Math.round(run.perSecond)}/s`);
        }
      }
      for (const id of MODES) {
        const first = found.find((row) => row.id === id);
        found.push(rowOf({ ids, id, rows: size, bytesPerRow, first, own: rounds.get(id)! }));
      }
    }
    return found;
  } finally {
    await world.close();
  }
}

interface Measured extends Pick<GrowthRow, 'ids' | 'id' | 'rows' | 'bytesPerRow'> {
  readonly first: GrowthRow | undefined;
  readonly own: readonly Pick<Run, 'perSecond' | 'walBytesPerEvent'>[];
}

function rowOf({ first, own, ...row }: Measured): GrowthRow {
  const perSecond = Math.round(median(own.map((run) => run.perSecond)));
  return {
    ...row,
    perSecond,
    ratio: round2(perSecond / (first?.perSecond ?? perSecond)),
    walBytesPerEvent: Math.round(median(own.map((run) => run.walBytesPerEvent))),
    runs: own.map((run) => Math.round(run.perSecond)),
  };
}
