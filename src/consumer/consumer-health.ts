import type { HealthReason, HealthReport, PartitionProgress } from '../shared/consumer-progress.js';
import { IdempotencyError } from '../shared/errors.js';
import type { ConsumingState } from './consuming.js';
import type { Lane } from './lane.js';
import { stalledDetail } from './stalled-reads.js';

/** A handler this long past its timeout cannot be helped from inside. */
const HUNG_MS = 10_000;
/** Records wait and nothing has begun for this long, without a reason to wait. */
const STUCK_MS = 60_000;

export interface HealthFacts {
  readonly state: ConsumingState | undefined;
  readonly listeningSince: Date | undefined;
  readonly overdueMs: number;
  /** The database is away. */
  readonly outage: { readonly since: Date; readonly detail: string } | undefined;
  readonly isPaused: (topic: string) => boolean;
  readonly now: number;
}

/** Liveness, readiness and progress of the consumer. Pure. A handler that is tried again, or a transaction that somebody else left open, keeps the consumer ready: the other partitions go on. */
export function consumerHealth(facts: HealthFacts): HealthReport {
  const lanes = facts.state?.membership?.lanes ?? [];
  const notReady = [...readiness(facts, lanes)];
  const retrying = lanes.flatMap(({ retrying: retry }) =>
    retry === undefined ? [] : [{ code: retry.code, detail: retry.detail, since: retry.since }],
  );
  const stalled = (facts.state?.membership?.stalledReads ?? []).map((read): HealthReason => ({
    code: 'READ_STALLED',
    detail: stalledDetail(read),
    since: read.since,
  }));
  const dead = [...liveness(facts, lanes)];
  return {
    live: dead.length === 0,
    ready: notReady.length === 0 && dead.length === 0,
    reasons: [...dead, ...notReady, ...retrying, ...stalled],
    partitions: lanes.map((lane) => progressOf(lane, facts)),
  };
}

function* readiness({ state, listeningSince, outage }: HealthFacts, lanes: readonly Lane[]): Generator<HealthReason> {
  const since = listeningSince ?? new Date();
  if (state === undefined) {
    yield {
      code: 'TRANSPORT_MISSING',
      detail: 'the transport has not been started, or the application is not initialised yet',
      since,
    };
    return;
  }
  if (state.isEnding)
    yield { code: 'SHUTDOWN_DEADLINE', detail: 'the consumer drains and leaves its group', since: new Date() };
  if (state.trouble !== undefined)
    yield { code: 'CONSUMER_CRASHED', detail: String(state.trouble.error), since: state.trouble.since };
  if (outage !== undefined) yield { code: 'DATABASE_UNAVAILABLE', ...outage };
  if (state.subscribed !== undefined && state.subscribed.missing.length > 0 && state.subscribed.topics.length === 0) {
    yield { code: 'TOPIC_MISSING', detail: `none of the topics exists: ${state.subscribed.missing.join(', ')}`, since };
  }
  if (state.membership?.trouble !== undefined) {
    const { error, since: begun } = state.membership.trouble;
    const code = IdempotencyError.is(error) ? error.code : 'BROKER_UNAVAILABLE';
    yield { code, detail: `reading where the partitions stand fails: ${String(error)}`, since: begun };
  }
  if (state.membership === undefined || !state.membership.isAnchored)
    yield { code: 'PARTITION_LOST', detail: 'not a member of the group yet, or reading its offsets', since };
  else if (state.membership.isStale)
    yield {
      code: 'BROKER_UNAVAILABLE',
      detail: 'heartbeats are not answered, so nothing new begins',
      since: new Date(),
    };
  for (const lane of lanes)
    if (lane.stopped !== undefined) yield { code: lane.stopped.code, detail: lane.stopped.message, since: lane.since };
}

function* liveness(
  { overdueMs, now, isPaused, state, outage }: HealthFacts,
  lanes: readonly Lane[],
): Generator<HealthReason> {
  if (overdueMs > HUNG_MS)
    yield {
      code: 'HANDLER_TIMEOUT',
      detail: `a handler is ${Math.round(overdueMs / 1000)} s past its timeout`,
      since: new Date(Date.now() - overdueMs),
    };
  if (state?.membership === undefined || state.isEnding || outage !== undefined) return;
  if (!state.membership.isAnchored || state.membership.isStale) return;
  for (const lane of lanes) {
    const waits = !lane.isIdle && !lane.isWorking && lane.stopped === undefined && !isPaused(lane.topic);
    const idleMs = now - lane.lastActiveAt;
    if (waits && idleMs > STUCK_MS) {
      yield {
        code: 'HANDLER_TIMEOUT',
        detail: `${lane.topic}[${lane.partition}] has ${lane.queued} records waiting and began none for ${Math.round(idleMs / 1000)} s`,
        since: new Date(Date.now() - idleMs),
      };
    }
  }
}

function progressOf(lane: Lane, { isPaused, outage }: HealthFacts): PartitionProgress {
  const state =
    lane.stopped !== undefined
      ? 'stopped'
      : outage !== undefined
        ? 'outage'
        : lane.retrying !== undefined
          ? 'retrying'
          : isPaused(lane.topic)
            ? 'paused'
            : 'running';
  return {
    topic: lane.topic,
    partition: lane.partition,
    position: lane.ledger.committable.toString(),
    committed: lane.ledger.committed?.toString() ?? null,
    buffered: lane.queued,
    state,
    since: lane.retrying?.since ?? lane.since,
  };
}
