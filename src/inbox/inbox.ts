import type { LimitedInsert } from '../transaction/limited-insert.js';
import { claimStatement, claimValues, type Claim } from './claim.js';

type ClaimPlace = Pick<Claim, 'consumer' | 'topic' | 'partition' | 'offset'>;

/** The claim as the transaction sends it, in the same round trip as BEGIN. */
export interface PreparedClaim extends LimitedInsert {
  readonly values: readonly unknown[];
}

/** Our `processed_events` table: who handled what. Knows its place in the database once the start-up check has found it. */
export class Inbox {
  #statement: LimitedInsert | undefined;

  constructor(private readonly claimTimeoutMs: number) {}

  /** `table`: quoted and schema-qualified. */
  open(table: string): void {
    this.#statement = claimStatement(table, this.claimTimeoutMs);
  }

  /** `place`: of the record that brought the event. */
  claim(place: ClaimPlace, eventId: string, fingerprint: string): PreparedClaim {
    if (this.#statement === undefined) throw new Error('The inbox is used before the module has checked its table');
    const { text, lockTimeoutMs } = this.#statement;
    const { consumer, topic, partition, offset } = place;
    return { text, lockTimeoutMs, values: claimValues({ consumer, eventId, topic, partition, offset, fingerprint }) };
  }
}
