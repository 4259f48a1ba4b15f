/** When the demo does what. */
export interface Pace {
  /** How long events flow. */
  readonly flowMs: number;
  /** From one kill to the next. */
  readonly killEveryMs: number;
  /** From the first event until one worker is asked to stop. */
  readonly stopAfterMs: number;
  /** `session.timeout.ms` of the workers. */
  readonly sessionMs: number;
}

const SHORT_SESSION_MS = 1_500;
const LEAST_FLOW_MS = 22_000;
const MOST_RECORDS_PER_SECOND = 1_000;
/** The last one with half an interval to spare. */
const LEAST_KILLS = 3.5;

/**
 * `leastSessionMs`: the shortest session that the broker grants. A group sees that a member was killed when its session has ended; a broker that
 * does not grant short ones gets fewer kills, or the group would only ever wait for dead members.
 */
export function paceFor(records: number, leastSessionMs: number): Pace {
  const sessionMs = Math.max(SHORT_SESSION_MS, leastSessionMs);
  const killEveryMs = sessionMs === SHORT_SESSION_MS ? 1_000 : 2.5 * sessionMs;
  const flowMs = Math.max(LEAST_FLOW_MS, LEAST_KILLS * killEveryMs, (records / MOST_RECORDS_PER_SECOND) * 1_000);
  return { flowMs, killEveryMs, stopAfterMs: flowMs * 0.45, sessionMs };
}
