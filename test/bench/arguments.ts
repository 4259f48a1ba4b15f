import { parseArgs } from 'node:util';
import { ID_VERSIONS, type IdVersion } from './event-ids.js';

export interface Given {
  readonly events: number;
  readonly handlerMs: number;
  readonly duplicates: number;
}

interface Common {
  readonly runs: number;
  readonly given: Given;
  /** File for the figures as JSON. */
  readonly json: string | undefined;
}

export type BenchArguments =
  | ({ readonly kind: 'table'; readonly only: readonly string[] } & Common)
  | ({ readonly kind: 'growth'; readonly rows: readonly number[]; readonly ids: readonly IdVersion[] } & Common)
  | ({ readonly kind: 'memory' } & Common)
  | ({ readonly kind: 'outbox'; readonly backlog: number } & Common)
  | { readonly kind: 'help' }
  | { readonly kind: 'wrong'; readonly message: string };

const EVENTS = { table: 14_000, slowHandler: 4_000, growth: 14_000, memory: 300, outbox: 500 };
const LEAST_EVENTS = 60;

export const USAGE = `Usage: npm run bench -- [--only ROW]... [--duplicates SHARE] [--handler-ms MS] [--events N] [--runs N] [--json FILE]
       npm run bench -- --growth [--rows N,N,...] [--ids v4|v7]... [--events N] [--runs N] [--json FILE]
       npm run bench -- --memory [--events N] [--runs N] [--json FILE]
       npm run bench -- --outbox [--backlog N] [--events N] [--runs N] [--json FILE]

Each row of the table is one way to handle the same events: events per second, the ratio to another row in the same run, and
processor time. Each run is a process of its own on a backlog of its own, and counts only if every event has its one effect.

  --only ROW          only this row; may come more than once
  --duplicates SHARE  this share of the records repeats an event, from 0 to 0.9 (default 0). All of them repeated is the row ours-replay
  --handler-ms MS     each handler waits so long before its statement, from 0 to 1000 (default 0)
  --events N          records of a run, before what fast rows get on top (default ${EVENTS.table}; with --handler-ms ${EVENTS.slowHandler}, with --memory ${EVENTS.memory}, with --outbox ${EVENTS.outbox})
  --runs N            rounds, of which the median counts (default 3)
  --json FILE         also write the figures to this file

  --growth            speed, WAL and bytes a row while processed_events grows
  --rows N,N,...      to so many rows, ascending (default 0,1000000,10000000,50000000: 23 GB of disk and a good while)
  --ids v4|v7         only with event ids of this UUID version (default both)

  --memory            the largest resident set while a backlog of 1 MB records is caught up on

  --outbox            how long an event takes from its commit to Kafka's acknowledgement when nothing else is on, and how a backlog is sent: its speed and memory from beginning
                      to end, and its speed while another session holds a transaction open
  --backlog N         of so many rows (default 1000000)

  --help              print this

Exit status: 0, 1 when a run failed or its ledger was wrong, 2 for wrong arguments.`;

/** Reads the command line, without the program's own name. Pure. */
export function readArguments(args: readonly string[], rowIds: readonly string[]): BenchArguments {
  try {
    return read(args, rowIds);
  } catch (error) {
    return { kind: 'wrong', message: `${(error as Error).message.split('\n')[0]}\n\n${USAGE}` };
  }
}

function read(args: readonly string[], rowIds: readonly string[]): BenchArguments {
  const { values } = parseArgs({
    args: [...args],
    options: {
      only: { type: 'string', multiple: true, default: [] },
      duplicates: { type: 'string' },
      'handler-ms': { type: 'string' },
      events: { type: 'string' },
      runs: { type: 'string', default: '3' },
      json: { type: 'string' },
      growth: { type: 'boolean', default: false },
      rows: { type: 'string', default: '0,1000000,10000000,50000000' },
      ids: { type: 'string', multiple: true, default: [...ID_VERSIONS] },
      memory: { type: 'boolean', default: false },
      outbox: { type: 'boolean', default: false },
      backlog: { type: 'string', default: '1000000' },
      help: { type: 'boolean', short: 'h', default: false },
    },
  });
  if (values.help) return { kind: 'help' };
  const kind = kindOf(args, values);
  const handlerMs = number('handler-ms', values['handler-ms'] ?? '0', 0, 1_000);
  const usual = kind === 'table' && handlerMs > 0 ? EVENTS.slowHandler : EVENTS[kind];
  const common = {
    runs: whole('runs', values.runs, 1),
    given: {
      events: whole('events', values.events ?? String(usual), LEAST_EVENTS),
      handlerMs,
      duplicates: number('duplicates', values.duplicates ?? '0', 0, 0.9),
    },
    json: values.json,
  };
  if (kind === 'memory') return { kind, ...common };
  if (kind === 'outbox') return { kind, ...common, backlog: whole('backlog', values.backlog, 1000) };
  if (kind === 'growth') return { kind, ...common, rows: sizes(values.rows), ids: values.ids.map(idVersion) };
  for (const id of values.only)
    if (!rowIds.includes(id)) throw new Error(`--only is '${id}', but the rows are ${rowIds.join(', ')}`);
  return { kind, ...common, only: values.only };
}

const ONLY_OF = {
  table: ['only', 'duplicates', 'handler-ms'],
  growth: ['growth', 'rows', 'ids'],
  memory: ['memory'],
  outbox: ['outbox', 'backlog'],
};

/** What would be ignored is refused: a figure under options it was not measured with is worse than none. */
function kindOf(args: readonly string[], asked: { growth: boolean; memory: boolean; outbox: boolean }) {
  const kind = (['growth', 'memory', 'outbox'] as const).find((name) => asked[name]) ?? 'table';
  for (const [other, options] of Object.entries(ONLY_OF)) {
    const foreign = other !== kind && options.find((option) => args.some((arg) => arg.split('=')[0] === `--${option}`));
    if (foreign) throw new Error(`--${foreign} says nothing ${kind === 'table' ? 'here' : `with --${kind}`}`);
  }
  return kind;
}

function sizes(text: string): number[] {
  const rows = text.split(',').map((size) => whole('rows', size, 0));
  if (rows.some((size, at) => at > 0 && size <= rows[at - 1]!))
    throw new Error(`--rows is '${text}', but the table can only grow`);
  return rows;
}

function idVersion(text: string): IdVersion {
  const found = ID_VERSIONS.find((version) => version === text);
  if (found === undefined) throw new Error(`--ids is '${text}', but it has to be one of ${ID_VERSIONS.join(', ')}`);
  return found;
}

function whole(name: string, text: string, least: number): number {
  if (!Number.isInteger(Number(text))) throw new Error(`--${name} is '${text}', but it has to be a whole number`);
  return number(name, text, least, Number.MAX_SAFE_INTEGER);
}

function number(name: string, text: string, least: number, most: number): number {
  const value = Number(text);
  if (text.trim() === '' || !(value >= least && value <= most))
    throw new Error(`--${name} is '${text}', but it has to be from ${least} to ${most}`);
  return value;
}
