import { STALE_SESSION } from '../shared/session.js';

/** For brokers that miss heartbeats, before another client is tried. */
const LEAST_PATIENCE_MS = 2000;

export interface Sessions {
  readonly sessionTimeout: number;
  readonly rebalanceTimeout: number;
}

/**
 * What answered heartbeats say of a membership. Pure; times by performance.now().
 * - Stale: none was answered for most of a session, so nothing begins any more, for the group may give the partitions away.
 * - Lost: that lasts, and another client has to try. Counted from when it was seen, so that a process that was frozen itself does not blame the brokers; a join may
 *   take as long as the slowest member.
 * - REBALANCING need not be followed by a join: when that fails, kafkajs goes on in the generation it had, and an answered heartbeat shows it.
 */
export class HeartbeatWatch {
  #last: number;
  #staleSince: number | undefined;
  /** Since REBALANCING, or the beginning, and until a join or a heartbeat. */
  #joining = true;

  constructor(
    private readonly sessions: Sessions,
    now: number,
  ) {
    this.#last = now;
  }

  get isJoining(): boolean {
    return this.#joining;
  }

  isStale(now: number): boolean {
    return this.silentMs(now) > STALE_SESSION * this.sessions.sessionTimeout;
  }

  silentMs(now: number): number {
    return now - this.#last;
  }

  rebalancing(): void {
    this.#joining = true;
  }

  joined(now: number): void {
    this.#joining = false;
    this.#last = now;
    this.#staleSince = undefined;
  }

  /** A heartbeat was answered. `wentOn`: a rebalance has ended without a join. */
  answered(now: number): { readonly wasStale: boolean; readonly wentOn: boolean } {
    const told = { wasStale: this.isStale(now), wentOn: this.#joining };
    this.joined(now);
    return told;
  }

  /** To be asked from time to time: only what it was asked about counts. */
  isLost(now: number): boolean {
    if (!this.isStale(now)) {
      this.#staleSince = undefined;
      return false;
    }
    this.#staleSince ??= now;
    const { sessionTimeout, rebalanceTimeout } = this.sessions;
    const patienceMs = this.#joining
      ? rebalanceTimeout + sessionTimeout
      : Math.max(sessionTimeout / 2, LEAST_PATIENCE_MS);
    return now - this.#staleSince > patienceMs;
  }
}
