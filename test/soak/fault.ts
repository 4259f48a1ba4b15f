import type { Random } from './random.js';
import type { Stage } from './stage.js';
import type { Workers } from './workers.js';

/** What faults are done to. */
export interface Arena {
  readonly stage: Stage;
  readonly workers: Workers;
  readonly sessionMs: number;
  /** Long faults last as long as they do outside: minutes. Else they are multiples of a session. */
  readonly isLong: boolean;
}

/** A kind of fault. */
export interface Fault {
  readonly kind: string;
  /** How often it is chosen, against the others. */
  readonly weight: number;
  /** Only in long runs. */
  readonly longOnly?: boolean;
  /** Chooses all that is random about it. Nothing happens yet. */
  plan(random: Random, arena: Arena): PlannedFault;
}

export interface PlannedFault {
  /** For the line on the screen: "node 2, for 4.1 s". */
  readonly what: string;
  /** How many faults it counts as: SIGKILLs, freezes past a session, stops and restarts of a service, cuts by a proxy, forced rebalances. */
  readonly counts: number;
  /** Until when everything concerned has to move again. */
  readonly boundMs: number;
  /** Does it. Resolves when recovery can begin. */
  inject(): Promise<Struck | void>;
  /** Undone only after everything has moved in spite of it. */
  restore?(): Promise<void>;
}

export interface Struck {
  /** Who is concerned, as `topic/partition`. Default all. */
  readonly partitions?: readonly string[];
  /** How many faults it was in truth. Default as planned. */
  readonly counts?: number;
  /** When recovery began, by `performance.now()`. Default the end of `inject`. */
  readonly since?: number;
}

export function seconds(ms: number): string {
  return `${(ms / 1_000).toFixed(1)} s`;
}
