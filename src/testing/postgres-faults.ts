import type { ErrorFields } from './postgres-wire.js';

/** A text that the statement contains, an expression that it matches, or a function that says whether it is one. */
export type Matcher = string | RegExp | ((statement: string) => boolean);

/** What happened when a fault struck. */
export interface FaultHit {
  /** The SQL text it struck at. */
  statement: string;
  /** What the server did with it and the client never heard: `COMMIT`, `ROLLBACK` (the transaction had failed before) or an SQLSTATE. */
  answer?: string;
}

/** A fault that waits for its moment. */
export interface ArmedFault {
  /** Resolves when it has struck for the first time. Stays pending if it never does. */
  readonly hit: Promise<FaultHit>;
  /** How often it has struck. */
  readonly hits: number;
  /** Takes it back if it has not struck. */
  disarm(): void;
}

export type FaultAction =
  { kind: 'swallowReply' } | { kind: 'cutBefore' } | { kind: 'answerWithError'; error: ErrorFields };

/** One fault in the list of a proxy: which statements it is for, what it does, and how often it still may. */
export class StatementFault implements ArmedFault {
  hits = 0;
  readonly hit: Promise<FaultHit>;
  private tellHit: (hit: FaultHit) => void = () => undefined;

  constructor(
    private readonly matcher: Matcher,
    readonly action: FaultAction,
    private times: number,
  ) {
    this.hit = new Promise((resolve) => (this.tellHit = resolve));
  }

  /** True if the statement is one of its own; uses up one time. */
  take(statement: string): boolean {
    if (this.times === 0 || !matches(this.matcher, statement)) return false;
    this.times -= 1;
    return true;
  }

  /** The statement it was taken for was never run: it waits for the next. */
  giveBack(): void {
    this.times += 1;
  }

  strike(hit: FaultHit): void {
    this.hits += 1;
    this.tellHit(hit);
  }

  disarm(): void {
    this.times = 0;
  }
}

/** True for a text that ends a transaction by committing it, alone or as the first or last of several statements. */
export function isCommit(statement: string): boolean {
  return /(?:^|;)\s*(?:COMMIT|END)(?:\s+(?:WORK|TRANSACTION))?(?:\s+AND\s+(?:NO\s+)?CHAIN)?\s*(?:;|$)/i.test(statement);
}

function matches(matcher: Matcher, statement: string): boolean {
  if (typeof matcher === 'function') return matcher(statement);
  return typeof matcher === 'string' ? statement.includes(matcher) : statement.search(matcher) >= 0;
}
