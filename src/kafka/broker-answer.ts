/** What the broker's answer was, where it was one. kafkajs wraps it when it has tried often enough. */
export function typeOf(error: unknown): unknown {
  for (let cause = error; cause instanceof Error; cause = cause.cause as unknown)
    if ('type' in cause && cause.type !== undefined) return cause.type;
  return undefined;
}

/** A partition has no leader: all its replicas are away, or one is being elected. */
export const LEADERLESS = 'LEADER_NOT_AVAILABLE';
