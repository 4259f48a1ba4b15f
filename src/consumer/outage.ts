import type { OutageNotice } from './outage-notice.js';

const PROBE_MS = 1000;
/** One lost connection is none yet: the delivery runs again on a new one, and only if that fails too the database is away. */
const SUSPICION = 2;

/** What suffers from an outage: a lane whose record waits for the database. */
export interface Sufferer {
  wake(): void;
}

/**
 * The database is away: nothing begins but one delivery each second, as a probe, for as long as it takes.
 * - declared by the second delivery in a row that could not reach the database;
 * - over as soon as one does, or when no lane is left that waits for it;
 * - its attempts never count, so a backlog is never parked because of it.
 */
export class Outage {
  readonly #sufferers = new Set<Sufferer>();
  #inARow = 0;
  #probe: Sufferer | undefined;
  #timer: NodeJS.Timeout | undefined;

  /** `wakeAll`: everything looks again whether it may begin. */
  constructor(
    private readonly notice: OutageNotice,
    private readonly wakeAll: () => void,
  ) {}

  get declared(): { readonly since: Date; readonly detail: string } | undefined {
    return this.notice.begun;
  }

  /** Whether this lane may begin a delivery: outside an outage every one, inside the one whose turn it is. */
  admits(lane: Sufferer): boolean {
    return this.#timer === undefined || this.#probe === lane;
  }

  /** A delivery of the lane could not reach the database. */
  suffered(lane: Sufferer, detail: string): void {
    this.#sufferers.add(lane);
    this.#inARow += 1;
    if (this.#probe === lane) this.#probe = undefined;
    if (this.#timer !== undefined || this.#inARow < SUSPICION) return;
    this.#timer = setInterval(() => this.#nextProbe(), PROBE_MS);
    this.notice.begin('The database is away, so consuming pauses and tries one record each second', detail);
  }

  /** A delivery has reached the database, whatever became of it. */
  passed(): void {
    if (this.#inARow > 0) this.#end();
  }

  /** The lane is dead. */
  left(lane: Sufferer): void {
    if (this.#sufferers.delete(lane) && this.#sufferers.size === 0) this.#end();
  }

  #nextProbe(): void {
    const [next] = this.#sufferers;
    if (next === undefined) return;
    this.#sufferers.delete(next); // to the end of the line: one that may not begin, or hangs, keeps no other from its turn
    this.#sufferers.add(next);
    this.#probe = next;
    next.wake();
  }

  #end(): void {
    this.#sufferers.clear();
    this.#inARow = 0;
    this.#probe = undefined;
    clearInterval(this.#timer);
    if (this.#timer === undefined) return;
    this.#timer = undefined;
    this.notice.end();
    this.wakeAll();
  }
}
