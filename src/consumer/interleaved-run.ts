import type { DeliveryReport } from '../shared/delivery.js';
import { keyOf, type ConsumedRecord } from './consumed-record.js';
import { KeyQueues } from './key-queues.js';

/** One of the records of a group. */
interface Placed {
  readonly at: number;
  readonly offset: bigint;
  readonly record: ConsumedRecord;
}

export interface InterleavedRun {
  readonly records: readonly ConsumedRecord[];
  /** How many at once. */
  readonly keys: number;
  /** Brings one of them to its handlers; true if the others may go on. */
  readonly run: (at: number) => Promise<boolean>;
  /** The first has got so far that the others may begin. Before it ends, unless it stops them. */
  readonly opened: Promise<void>;
  /** So many of the records, from the first on, are to run. Known once it is opened. */
  readonly size: () => number;
}

/**
 * Runs records of different keys at once and those of one key in order, from the first on, which is alone until it has opened what they share. Once one of them stops
 * the others none begins, and what is at work ends. Resolves when nothing is at work.
 */
export function runInterleaved({ records, keys, run, opened, size }: InterleavedRun): Promise<void> {
  const queues = new KeyQueues<Placed>(({ record }) => keyOf(record));
  const push = (at: number) => queues.push({ at, offset: records[at]!.offset, record: records[at]! });
  let isStopped = false;
  return new Promise((resolve, reject) => {
    const begin = () => {
      while (!isStopped && queues.begun < keys) {
        const placed = queues.begin();
        if (placed === undefined) break;
        run(placed.at).then((goesOn) => {
          isStopped ||= !goesOn;
          queues.end(placed);
          begin();
        }, reject);
      }
      if (queues.begun === 0) resolve();
    };
    push(0);
    begin();
    void opened.then(() => {
      for (let at = 1; at < size(); at += 1) push(at);
      begin();
    });
  });
}

/** How one of the records of a group failed. */
export interface FailedRecord {
  readonly at: number;
  readonly report: DeliveryReport;
}

/**
 * Whose failure counts, of all that failed in one attempt. Pure:
 * - what ends the group without a fault of its records comes first: a claim that is busy, a database that is away;
 * - then the first of those that failed by themselves, for what failed only because another had failed before may be good;
 * - undefined: none of them is known to have failed by itself.
 */
export function firstToBlame(failed: readonly FailedRecord[]): FailedRecord | undefined {
  const inOrder = [...failed].sort((one, other) => one.at - other.at);
  return (
    inOrder.find(({ report }) => report.outcome === 'busy' || isOutage(report)) ??
    inOrder.find(({ report }) => report.outcome !== 'failed' || report.isConsequence !== true)
  );
}

function isOutage(report: DeliveryReport): boolean {
  return report.outcome === 'failed' && report.isOutage === true;
}
