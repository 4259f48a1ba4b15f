import type { OutageNotice } from './outage-notice.js';

const PROBE_MS = 1000;
/** One lost connection is none yet: the delivery runs again on a new one, and only if that fails too the database is away. */
const SUSPICION = 2;

/** A lane that may try whether the database is back. */
export interface Prober {
  wake(): void;
}

/**
 * The database is away: nothing begins but one delivery each second, as a probe, for as long as it takes.
 * - declared by the second delivery in a row that could not reach the database;
 * - the lanes that have something to deliver try by turns: one that hangs keeps no other from it;
 * - over as soon as one reaches the database, or when no lane is left that could try;
 * - its attempts never count, so a backlog is never parked because of it.
 */
export class Outage {
  #inARow = 0;
  #probe: Prober | undefined;
  #lastProbe: Prober | undefined;
  #timer: NodeJS.Timeout | undefined;

  constructor(
    private readonly notice: OutageNotice,
    private readonly lanes: {
      /** Those that would begin now but for the outage. */
      readonly ready: () => readonly Prober[];
      /** Everything looks again whether it may begin. */
      readonly wakeAll: () => void;
    },
  ) {}

  get declared(): { readonly since: Date; readonly detail: string } | undefined {
    return this.notice.begun;
  }

  /** Whether this lane may begin a delivery: outside an outage every one, inside the one whose turn it is. */
  admits(lane: Prober): boolean {
    return this.#timer === undefined || this.#probe === lane;
  }

  /** A delivery could not reach the database. */
  suffered(detail: string): void {
    this.#inARow += 1;
    this.#probe = undefined;
    if (this.#timer !== undefined || this.#inARow < SUSPICION) return;
    this.#timer = setInterval(() => this.#nextProbe(), PROBE_MS);
    this.notice.begin('The database is away, so consuming pauses and tries one record each second', detail);
  }

  /** The database has answered. */
  passed(): void {
    if (this.#inARow > 0) this.end();
  }

  /** Also when nobody consumes any more. */
  end(): void {
    this.#inARow = 0;
    this.#probe = undefined;
    clearInterval(this.#timer);
    if (this.#timer === undefined) return;
    this.#timer = undefined;
    this.notice.end();
    this.lanes.wakeAll();
  }

  #nextProbe(): void {
    const ready = this.lanes.ready();
    const next = ready[(ready.findIndex((lane) => lane === this.#lastProbe) + 1) % ready.length];
    if (next === undefined) return this.end(); // nobody could find out
    this.#lastProbe = next;
    this.#probe = next;
    next.wake();
  }
}
