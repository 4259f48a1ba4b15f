import type { Services } from '../services/services.js';
import type { BenchArguments, Given } from './arguments.js';
import { AGAINST, CONTENDERS, workloadOf } from './contenders.js';
import { runContender, type Run } from './run.js';
import { ownCpuMicros, rowOf, tableOf, type Row } from './table.js';
import { KEYS, PARTITIONS, POOL, VALUE_BYTES } from './workload.js';

/** The table: every row in each round, one after another, so that a ratio compares neighbours in time. */
export async function compare(
  { given, runs, only }: Extract<BenchArguments, { kind: 'table' }>,
  services: Services,
): Promise<{ rows: Row[]; ownCpuMicrosPerEvent: number | null }> {
  const ids = Object.keys(CONTENDERS).filter((id) => only.length === 0 || only.includes(id));
  console.log(workloadLines(ids, given, runs));
  const rounds = new Map<string, Run[]>(ids.map((id) => [id, []]));
  for (let round = 1; round <= runs; round += 1) {
    for (const id of ids) {
      const run = await runContender(id, workloadOf(id, given), services);
      rounds.get(id)!.push(run);
      console.log(`round ${round}  ${id.padEnd(16)} ${Math.round(run.perSecond)}/s`);
    }
  }
  const rows = ids.map((id) => rowOf(id, AGAINST[id] ?? null, rounds));
  console.log(`\n${tableOf(rows)}`);
  const ownCpu = ownCpuMicros(rounds);
  if (ownCpu !== null) console.log(`\nown CPU per record over the hand-written loop: ${ownCpu} µs`);
  return { rows, ownCpuMicrosPerEvent: ownCpu };
}

/** The workload of all rows, and of each row that has another one. */
function workloadLines(ids: readonly string[], given: Given, runs: number): string {
  const others = ids.flatMap((id) => {
    const { records, partitions, pool, handlerMs } = workloadOf(id, given);
    const differs = [
      records !== given.events && `${records} records`,
      partitions !== PARTITIONS && `${partitions} partition${partitions === 1 ? '' : 's'}`,
      pool !== POOL && `pool ${pool}`,
      handlerMs !== given.handlerMs && `a handler of ${handlerMs} ms`,
    ].filter((difference) => difference !== false);
    return differs.length === 0 ? [] : [`${id} (${differs.join(', ')})`];
  });
  const { events, handlerMs, duplicates } = given;
  return [
    `${events} records of ${VALUE_BYTES} bytes, ${KEYS} keys, ${duplicates * 100} % duplicates, ${PARTITIONS} partitions, pool ${POOL}, handlers that wait ${handlerMs} ms, ${runs} rounds, each run in a fresh process`,
    others.length > 0 ? `but ${others.join('; ')}\n` : '',
  ].join('\n');
}
