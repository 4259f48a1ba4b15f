import { markdown, median, round2 } from './figures.js';
import type { Run } from './run.js';

export interface Row {
  readonly id: string;
  readonly perSecond: number;
  readonly against: string | null;
  readonly ratio: number | null;
  readonly runs: readonly number[];
  readonly cpuMicrosPerEvent: number;
  readonly ok: boolean;
}

type Measured = Pick<Run, 'perSecond' | 'cpuMicrosPerEvent'>;
/** Of each row its runs, one for each round. */
export type Rounds = ReadonlyMap<string, readonly Measured[]>;

export function rowOf(id: string, against: string | null, rounds: Rounds): Row {
  const own = rounds.get(id)!;
  const others = against === null ? undefined : rounds.get(against);
  return {
    id,
    perSecond: Math.round(median(own.map((run) => run.perSecond))),
    against,
    // The median of the rounds' ratios: each compares neighbours in time, for these machines are shared.
    ratio: others === undefined ? null : round2(median(own.map((run, at) => run.perSecond / others[at]!.perSecond))),
    runs: own.map((run) => Math.round(run.perSecond)),
    cpuMicrosPerEvent: Math.round(median(own.map((run) => run.cpuMicrosPerEvent))),
    ok: true, // a run whose ledger is wrong has thrown
  };
}

/** What the default mode costs above the loop that does the same by hand, of processor time of the consuming process. */
export function ownCpuMicros(rounds: Rounds): number | null {
  const [ours, hand] = [rounds.get('ours-default'), rounds.get('hand-message')];
  if (ours === undefined || hand === undefined) return null;
  return Math.round(median(ours.map((run, at) => run.cpuMicrosPerEvent - hand[at]!.cpuMicrosPerEvent)));
}

export function tableOf(rows: readonly Row[]): string {
  return markdown(
    ['row', 'events/s (median)', 'ratio', 'against', 'CPU µs/event', 'runs'],
    rows.map(({ id, perSecond, ratio, against, cpuMicrosPerEvent, runs }) => [
      id,
      perSecond,
      ratio,
      against,
      cpuMicrosPerEvent,
      runs.join(', '),
    ]),
  );
}
