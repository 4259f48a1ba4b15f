import { claimStatement, claimValues, type Claim } from './claim.js';

/** The claim as the transaction sends it, in the same round trip as BEGIN. */
export interface PreparedClaim {
  readonly text: string;
  readonly values: readonly unknown[];
  readonly lockTimeoutMs: number;
}

/** Our `processed_events` table: who handled what. Knows its place in the database once the start-up check has found it. */
export class Inbox {
  #text: string | undefined;

  constructor(private readonly claimTimeoutMs: number) {}

  /** `table`: quoted and schema-qualified. */
  open(table: string): void {
    this.#text = claimStatement(table);
  }

  claim(claim: Claim): PreparedClaim {
    if (this.#text === undefined) throw new Error('The inbox is used before the module has checked its table');
    return { text: this.#text, values: claimValues(claim), lockTimeoutMs: this.claimTimeoutMs };
  }
}
