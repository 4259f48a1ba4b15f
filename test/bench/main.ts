import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { parseArgs } from 'node:util';
import { packageRoot } from '../services/package-root.js';
import { findOrStartServices } from '../services/services.js';
import { AGAINST, CONTENDERS, MORE_EVENTS } from './contenders.js';
import { runContender, type Run } from './run.js';
import { KEYS, PARTITIONS, POOL, VALUE_BYTES } from './workload.js';

const DEFAULTS = { events: '14000', runs: '3' };

interface Row {
  readonly id: string;
  readonly perSecond: number;
  readonly against: string | null;
  readonly ratio: number | null;
  readonly runs: readonly number[];
  readonly cpuMicrosPerEvent: number;
  readonly ok: boolean;
}

async function main(): Promise<void> {
  const { values } = parseArgs({
    options: {
      json: { type: 'string' },
      events: { type: 'string', default: DEFAULTS.events },
      runs: { type: 'string', default: DEFAULTS.runs },
      only: { type: 'string', multiple: true },
    },
  });
  const [events, rounds] = [wholeNumber('events', values.events, 3000), wholeNumber('runs', values.runs, 1)];
  const ids = Object.keys(CONTENDERS).filter((id) => values.only === undefined || values.only.includes(id));
  const services = await findOrStartServices();
  try {
    await describe(services.databaseUrl, events, rounds);
    const runs = new Map<string, Run[]>(ids.map((id) => [id, []]));
    for (let round = 1; round <= rounds; round += 1) {
      for (const id of ids) {
        const run = await runContender(id, events * (MORE_EVENTS[id] ?? 1), services);
        runs.get(id)!.push(run);
        console.log(`round ${round}  ${id.padEnd(14)} ${Math.round(run.perSecond)}/s`);
      }
    }
    const rows = ids.map((id) => rowOf(id, runs));
    show(rows);
    if (values.json !== undefined) writeFileSync(values.json, `${JSON.stringify({ rows }, null, 2)}\n`);
  } finally {
    await services.stop();
  }
}

function rowOf(id: string, runs: ReadonlyMap<string, readonly Run[]>): Row {
  const own = runs.get(id)!;
  const against = AGAINST[id] ?? null;
  const perSecond = median(own.map((run) => run.perSecond));
  const others = against === null ? undefined : runs.get(against);
  return {
    id,
    perSecond: Math.round(perSecond),
    against,
    // The median of the rounds' ratios: each compares neighbours in time, for these machines are shared.
    ratio: others === undefined ? null : round2(median(own.map((run, at) => run.perSecond / others[at]!.perSecond))),
    runs: own.map((run) => Math.round(run.perSecond)),
    cpuMicrosPerEvent: Math.round(median(own.map((run) => run.cpuMicrosPerEvent))),
    ok: true, // a run whose ledger is wrong has thrown
  };
}

function show(rows: readonly Row[]): void {
  console.log('\n| row | events/s (median) | ratio | against | CPU µs/event | runs |\n|---|---|---|---|---|---|');
  for (const { id, perSecond, ratio, against, cpuMicrosPerEvent, runs } of rows) {
    console.log(
      `| ${id} | ${perSecond} | ${ratio ?? '–'} | ${against ?? '–'} | ${cpuMicrosPerEvent} | ${runs.join(', ')} |`,
    );
  }
}

async function describe(databaseUrl: string, events: number, rounds: number): Promise<void> {
  const versionOf = (name: string) =>
    (JSON.parse(readFileSync(join(packageRoot(), 'node_modules', name, 'package.json'), 'utf8')) as { version: string })
      .version;
  const { default: pg } = await import('pg');
  const client = new pg.Client({ connectionString: databaseUrl });
  await client.connect();
  const server = (
    await client.query<{ version: string; fsync: string; sync: string }>(
      `SELECT current_setting('server_version') AS version, current_setting('fsync') AS fsync, current_setting('synchronous_commit') AS sync`,
    )
  ).rows[0]!;
  await client.end();
  console.log(
    `Nest ${versionOf('@nestjs/core')}, kafkajs ${versionOf('kafkajs')}, TypeORM ${versionOf('typeorm')}, pg ${versionOf('pg')}, Node ${process.versions.node}; ` +
      `PostgreSQL ${server.version} with fsync ${server.fsync}, synchronous_commit ${server.sync}`,
  );
  console.log(
    `${events} events of ${VALUE_BYTES} bytes, ${KEYS} keys, ${PARTITIONS} partitions, pool ${POOL}, ${rounds} rounds, each run in a fresh process; more events for ${Object.entries(
      MORE_EVENTS,
    )
      .map(([id, times]) => `${id} (× ${times})`)
      .join(', ')}\n`,
  );
}

function wholeNumber(name: string, text: string, least: number): number {
  const number = Number(text);
  if (!Number.isSafeInteger(number) || number < least)
    throw new Error(`--${name} is '${text}': give a whole number of at least ${least}`);
  return number;
}

function median(numbers: readonly number[]): number {
  const sorted = [...numbers].sort((a, b) => a - b);
  const middle = sorted.length >> 1;
  return sorted.length % 2 === 1 ? sorted[middle]! : (sorted[middle - 1]! + sorted[middle]!) / 2;
}

function round2(number: number): number {
  return Math.round(number * 100) / 100;
}

await main();
