import { DEFAULTS } from '#src/options/defaults.js';
import type { Services } from '../services/services.js';
import type { BenchArguments } from './arguments.js';
import { workloadOf } from './contenders.js';
import { markdown, median } from './figures.js';
import { runContender, type Run } from './run.js';

const VALUE_BYTES = 1_000_000;
const ROWS = ['hand-message', 'ours-default', 'ours-batch'];

interface MemoryRow {
  readonly id: string;
  readonly peakMb: number;
  readonly atStartMb: number;
  /** What `buffer.bytes` allows to be fetched ahead. */
  readonly bufferMb: number | null;
}

/** The consuming process's memory while it catches up on a backlog of large records. */
export async function weigh(
  { given, runs }: Extract<BenchArguments, { kind: 'memory' }>,
  services: Services,
): Promise<{ memory: MemoryRow[] }> {
  console.log(`${given.events} records of ${VALUE_BYTES} bytes, ${runs} rounds, each run in a fresh process\n`);
  const memory: MemoryRow[] = [];
  for (const id of ROWS) {
    const found: Run[] = [];
    for (let round = 1; round <= runs; round += 1) {
      const workload = { ...workloadOf(id, given), records: given.events, valueBytes: VALUE_BYTES };
      found.push(await runContender(id, workload, services));
    }
    memory.push({
      id,
      peakMb: megabytes(median(found.map(({ peakRssBytes }) => peakRssBytes))),
      atStartMb: megabytes(median(found.map(({ rssAtStartBytes }) => rssAtStartBytes))),
      bufferMb: id.startsWith('ours') ? megabytes(DEFAULTS.buffer.bytes) : null,
    });
  }
  const headings = ['row', 'peak RSS MB', 'before it consumed MB', 'buffer.bytes MB'];
  console.log(
    markdown(
      headings,
      memory.map(({ id, peakMb, atStartMb, bufferMb }) => [id, peakMb, atStartMb, bufferMb]),
    ),
  );
  return { memory };
}

function megabytes(bytes: number): number {
  return Math.round(bytes / 1_000_000);
}
