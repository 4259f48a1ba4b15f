import { parseArgs } from 'node:util';
import { isMode, MODES, type Mode } from './mode.js';

export type SoakArguments =
  | {
      readonly kind: 'run';
      readonly minutes: number;
      readonly seed: number;
      readonly mode: Mode;
      readonly json: boolean;
      readonly only: readonly string[];
    }
  | { readonly kind: 'check'; readonly folder: string; readonly json: boolean }
  | { readonly kind: 'help' }
  | { readonly kind: 'wrong'; readonly message: string };

export const USAGE = `Usage: npm run soak -- [--minutes N] [--seed S] [--mode MODE] [--only FAULT]... [--json]
       npm run soak -- --check FOLDER [--json]

Three brokers and a PostgreSQL behind proxies, four worker processes with two idempotent handlers, events that flow all the
time, and one fault after another. Afterwards the database, the topics and the group's offsets are asked whether everything
that is promised holds.

  --minutes N     how long faults are injected, 0.5 to 600 (default 10). From 5 minutes on, long faults last as long as they do outside
  --seed S        a whole number that the faults follow from (default: chosen and printed)
  --mode MODE     how events come to the handlers: ${MODES.join(', ')} (default: the first)
  --only FAULT    only faults of this kind; may come more than once
  --check FOLDER  ask once more what a run has written down; nothing is started
  --json          end with one JSON object on standard output; all else goes to standard error
  --help          print this

Always starts services of its own. Exit status: 0 when every invariant that was tried held, 1 when one did not, or the run failed, 2 for wrong arguments.`;

/** Reads the command line, without the program's own name. Pure, but for a seed that is not given. */
export function readArguments(args: readonly string[], newSeed: () => number): SoakArguments {
  let values;
  try {
    ({ values } = parseArgs({
      args: [...args],
      options: {
        minutes: { type: 'string', default: '10' },
        seed: { type: 'string' },
        mode: { type: 'string', default: MODES[0] },
        only: { type: 'string', multiple: true, default: [] },
        check: { type: 'string' },
        json: { type: 'boolean', default: false },
        help: { type: 'boolean', short: 'h', default: false },
      },
    }));
  } catch (error) {
    return wrong((error as Error).message.split('\n')[0] as string);
  }
  const { minutes: minutesText, seed: seedText, mode, check, json, help, only } = values;
  if (help) return { kind: 'help' };
  if (check !== undefined) return { kind: 'check', folder: check, json };
  const minutes = Number(minutesText);
  if (!(minutes >= 0.5 && minutes <= 600))
    return wrong(`--minutes is ${minutesText}, but it has to be from 0.5 to 600`);
  if (seedText !== undefined && !/^\d{1,9}$/.test(seedText))
    return wrong(`--seed is ${seedText}, but it has to be a whole number of at most nine digits`);
  if (!isMode(mode)) return wrong(`--mode is ${mode}, but it has to be one of ${MODES.join(', ')}`);
  return { kind: 'run', minutes, seed: seedText === undefined ? newSeed() : Number(seedText), mode, json, only };
}

function wrong(fault: string): SoakArguments {
  return { kind: 'wrong', message: `${fault.replace(/\.$/, '')}. For example: npm run soak -- --minutes 2 --seed 7` };
}
