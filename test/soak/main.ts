// npm run soak: the seeded workload under faults, and the checker behind it.
import { randomInt } from 'node:crypto';
import { readArguments, USAGE } from './arguments.js';
import { verdicts } from './checker.js';
import type { Facts } from './facts.js';
import { History, readFacts } from './history.js';
import type { Mode } from './mode.js';
import { FAULTS } from './orchestrator.js';
import { jsonOf, tableOf } from './report.js';
import { runSoak } from './run.js';

const read = readArguments(process.argv.slice(2), () => randomInt(1_000_000));
switch (read.kind) {
  case 'help':
    console.log(`${USAGE}\n\nFaults: ${FAULTS.map(({ kind }) => kind).join(', ')}`);
    break;
  case 'wrong':
    console.error(read.message);
    process.exitCode = 2;
    break;
  case 'check':
    process.exitCode = tell(await readFacts(read.folder), read.json);
    break;
  case 'run':
    process.exitCode = await soak(read);
}

interface RunArguments {
  readonly minutes: number;
  readonly seed: number;
  readonly mode: Mode;
  readonly only: readonly string[];
  readonly json: boolean;
}

/** Gives the exit status. */
async function soak({ minutes, seed, mode, only, json }: RunArguments): Promise<number> {
  const say = (line: string): void => (json ? console.error(line) : console.log(line));
  const unknown = only.filter((kind) => FAULTS.every((fault) => fault.kind !== kind));
  if (unknown.length > 0) {
    console.error(`--only ${unknown.join(', ')} is no fault; they are ${FAULTS.map(({ kind }) => kind).join(', ')}`);
    return 2;
  }
  const end = new AbortController();
  // Not once: npm passes Ctrl-C on a second time, which must not interrupt the clearing up.
  for (const signal of ['SIGINT', 'SIGTERM', 'SIGHUP'] as const) process.on(signal, () => end.abort());
  const history = new History(seed);
  say(`Seed ${seed}, mode ${mode}, ${minutes} min. History: ${history.folder}`);
  try {
    const facts = await runSoak({ seed, minutes, mode, only, history, say, signal: end.signal });
    return tell(facts, json);
  } catch (error) {
    if (end.signal.aborted) return 130;
    say(`The soak failed: ${(error as Error).stack}\nHistory: ${history.folder}`);
    return 1;
  } finally {
    await history.close();
  }
}

function tell(facts: Facts, json: boolean): number {
  const found = verdicts(facts);
  (json ? console.error : console.log)(`\n${tableOf(facts, found)}`);
  if (json) console.log(jsonOf(facts, found));
  return found.every(({ verdict }) => verdict !== 'broken') ? 0 : 1;
}
