import { type Duration, durationMs } from '../shared/duration.js';
import { STALE_SESSION } from '../shared/session.js';
import { DEFAULTS, KAFKAJS_DEFAULTS } from './defaults.js';
import type { Fault } from './fault.js';
import { readPath } from './read.js';

/** A rule that needs several options. It is asked only where each of them is right by itself, so that one fault is told once. */
interface Contradiction {
  readonly between: readonly string[];
  readonly find: (options: object) => Fault | undefined;
}

/** Groups of options that are a growing wait. */
export type Waits = 'retry' | 'redelivery';

const WAITS: readonly Waits[] = ['retry', 'redelivery'];
const DEFAULT = ' (the default)';
const CONSUMER = 'kafka.consumer';
const SESSION = `${CONSUMER}.sessionTimeout`;
const HEARTBEAT = `${CONSUMER}.heartbeatInterval`;
const REBALANCE = `${CONSUMER}.rebalanceTimeout`;
const MAX_WAIT = `${CONSUMER}.maxWaitTimeInMs`;
const INTERLEAVE = 'concurrency.interleave';
const KEYS = 'concurrency.keys';

const IN_MODULE: readonly Contradiction[] = [
  { between: ['retry.delay', 'retry.maxDelay'], find: (options) => waitContradiction('retry', options) },
  { between: ['redelivery.delay', 'redelivery.maxDelay'], find: (options) => waitContradiction('redelivery', options) },
  { between: [MAX_WAIT, SESSION], find: slowFetch },
  { between: [HEARTBEAT, SESSION, MAX_WAIT], find: rareHeartbeat },
  { between: [REBALANCE, HEARTBEAT, MAX_WAIT], find: shortRebalance },
  { between: [`${CONSUMER}.minBytes`, `${CONSUMER}.maxBytes`], find: minAboveMax },
  { between: ['limits.batchBytes', `${CONSUMER}.maxBytesPerPartition`], find: smallBatches },
  { between: [INTERLEAVE, KEYS], find: nothingToInterleave },
];

/** Options of `forRoot` that are right one by one and wrong together, the defaults of those not given included. */
export function moduleContradictions(options: object, faulty: ReadonlySet<string>): Fault[] {
  return IN_MODULE.filter(({ between }) => !between.some((path) => isFaulty(path, faulty))).flatMap(
    ({ find }) => find(options) ?? [],
  );
}

/** The same for `@Idempotent()`, as far as it can be told before the module's defaults are known; resolveHandlerOptions sees the rest. */
export function handlerContradictions(options: object, faulty: ReadonlySet<string>): Fault[] {
  return WAITS.filter((group) =>
    [`${group}.delay`, `${group}.maxDelay`].every(
      (path) => readPath(options, path) !== undefined && !isFaulty(path, faulty),
    ),
  ).flatMap((group) => waitContradiction(group, options) ?? []);
}

/** The same for `@IdempotentBatch()`. */
export function batchContradictions(options: object, faulty: ReadonlySet<string>): Fault[] {
  const faults = handlerContradictions(options, faulty);
  const records = readPath(options, 'messagesPerTransaction') as number | undefined;
  if (records === undefined || isFaulty('messagesPerTransaction', faulty)) return faults;
  const problem = `is ${String(records)}, but a batch is one transaction whatever it says`;
  return [...faults, { path: 'messagesPerTransaction', problem, remedy: 'Set maxSize instead.' }];
}

/** `from` says in the message where a value that the options themselves do not give comes from. */
export function maxDelayBelowDelay(
  group: Waits,
  { maxDelay, delay }: { maxDelay: Duration; delay: Duration },
  from: { maxDelay: string; delay: string },
): Fault | undefined {
  if ((durationMs(maxDelay) ?? 0) >= (durationMs(delay) ?? 0)) return undefined;
  return {
    path: `${group}.maxDelay`,
    problem: `is ${quote(maxDelay)}${from.maxDelay}, but ${group}.delay is ${quote(delay)}${from.delay}, so that no wait could be as long as the first`,
    remedy: `Raise ${group}.maxDelay to at least ${quote(delay)}, or lower ${group}.delay.`,
  };
}

function isFaulty(path: string, faulty: ReadonlySet<string>): boolean {
  return [...faulty].some((wrong) => path === wrong || path.startsWith(`${wrong}.`));
}

function waitContradiction(group: Waits, options: object): Fault | undefined {
  const maxDelay = readPath(options, `${group}.maxDelay`) as Duration | undefined;
  const delay = readPath(options, `${group}.delay`) as Duration | undefined;
  const otherwise = DEFAULTS[group];
  return maxDelayBelowDelay(
    group,
    { maxDelay: maxDelay ?? otherwise.maxDelay, delay: delay ?? otherwise.delay },
    { maxDelay: maxDelay === undefined ? DEFAULT : '', delay: delay === undefined ? DEFAULT : '' },
  );
}

function slowFetch(options: object): Fault | undefined {
  const { maxWaitMs, sessionMs } = consumerTimes(options);
  const most = Math.floor(sessionMs / 3);
  if (maxWaitMs <= most) return undefined;
  return {
    path: MAX_WAIT,
    problem: `is ${told(options, MAX_WAIT, maxWaitMs)}, but sessionTimeout is ${told(options, SESSION, sessionMs)}: a heartbeat may wait for a fetch, and the group would drop this consumer`,
    remedy: `Set maxWaitTimeInMs to at most a third of the session, ${String(most)}, or lengthen the session.`,
  };
}

function rareHeartbeat(options: object): Fault | undefined {
  const { heartbeatMs, maxWaitMs, sessionMs } = consumerTimes(options);
  // A fetch wait that is too long has its own fault: here it counts as if it were mended.
  const oldestMs = heartbeatMs + Math.min(maxWaitMs, sessionMs / 3);
  if (oldestMs < sessionMs * STALE_SESSION) return undefined;
  return {
    path: HEARTBEAT,
    problem: `is ${told(options, HEARTBEAT, heartbeatMs)}, but sessionTimeout is ${told(options, SESSION, sessionMs)}: between two heartbeats this consumer would stop working or be dropped from the group`,
    remedy: `Set heartbeatInterval to a third of the session, ${String(Math.max(1, Math.floor(sessionMs / 3)))}.`,
  };
}

function shortRebalance(options: object): Fault | undefined {
  const { rebalanceMs, heartbeatMs, maxWaitMs } = consumerTimes(options);
  // The broker waits this long for members to join again, and they learn of it by their next heartbeat only (KIP-62).
  const learnsAfterMs = heartbeatMs + maxWaitMs;
  if (rebalanceMs > learnsAfterMs) return undefined;
  return {
    path: REBALANCE,
    problem: `is ${told(options, REBALANCE, rebalanceMs)}, but a consumer may learn of a rebalance only ${String(learnsAfterMs)} ms later (heartbeatInterval + maxWaitTimeInMs) and would be dropped`,
    remedy: `Set rebalanceTimeout well above ${String(learnsAfterMs)}, or leave it at ${String(DEFAULTS.kafka.consumer.rebalanceTimeout)}.`,
  };
}

function minAboveMax(options: object): Fault | undefined {
  const [min, max] = [`${CONSUMER}.minBytes`, `${CONSUMER}.maxBytes`];
  const minBytes = numberAt(options, min, KAFKAJS_DEFAULTS.minBytes);
  const maxBytes = numberAt(options, max, KAFKAJS_DEFAULTS.maxBytes);
  if (minBytes <= maxBytes) return undefined;
  return {
    path: min,
    problem: `is ${told(options, min, minBytes)}, but maxBytes is ${told(options, max, maxBytes)}: every fetch would wait its whole time`,
    remedy: `Lower minBytes to ${String(maxBytes)} or less, or raise maxBytes.`,
  };
}

function smallBatches(options: object): Fault | undefined {
  const [batch, fetch] = ['limits.batchBytes', `${CONSUMER}.maxBytesPerPartition`];
  const batchBytes = numberAt(options, batch, DEFAULTS.limits.batchBytes);
  const fetchBytes = numberAt(options, fetch, KAFKAJS_DEFAULTS.maxBytesPerPartition);
  if (batchBytes >= fetchBytes) return undefined;
  return {
    path: batch,
    problem: `is ${told(options, batch, batchBytes)}, but ${fetch} is ${told(options, fetch, fetchBytes)}: an ordinary full fetch would stop its partition`,
    remedy: `Raise limits.batchBytes to at least ${String(fetchBytes)}, or lower ${fetch}.`,
  };
}

/** Whether a handler shares transactions is known once all of them are: see the checks at start-up. */
function nothingToInterleave(options: object): Fault | undefined {
  const keys = numberAt(options, KEYS, DEFAULTS.concurrency.keys);
  if (readPath(options, INTERLEAVE) !== true || keys > 1) return undefined;
  return {
    path: INTERLEAVE,
    problem: `is true, but ${KEYS} is ${told(options, KEYS, keys)}: of one transaction no more than so many keys run at once`,
    remedy: `Set ${KEYS} to how many shall, such as 50, and messagesPerTransaction above 1; or leave ${INTERLEAVE} out.`,
  };
}

function consumerTimes(options: object): {
  sessionMs: number;
  heartbeatMs: number;
  rebalanceMs: number;
  maxWaitMs: number;
} {
  const defaults = DEFAULTS.kafka.consumer;
  return {
    sessionMs: numberAt(options, SESSION, defaults.sessionTimeout),
    heartbeatMs: numberAt(options, HEARTBEAT, defaults.heartbeatInterval),
    rebalanceMs: numberAt(options, REBALANCE, defaults.rebalanceTimeout),
    maxWaitMs: numberAt(options, MAX_WAIT, defaults.maxWaitTimeInMs),
  };
}

function numberAt(options: object, path: string, otherwise: number): number {
  return (readPath(options, path) ?? otherwise) as number;
}

function told(options: object, path: string, value: number): string {
  return readPath(options, path) === undefined ? `${String(value)}${DEFAULT}` : String(value);
}

function quote(value: Duration): string {
  return typeof value === 'string' ? `'${value}'` : String(value);
}
