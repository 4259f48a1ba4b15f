import type { LimitedInsert } from '../transaction/limited-insert.js';
import { claimsStatement, claimStatement, claimsValues, claimValues, releaseStatement, type Claim } from './claim.js';
import { handledBeforeStatement } from './handled-before.js';
import { handledEventsStatement } from './handled-events.js';

type ClaimPlace = Pick<Claim, 'consumer' | 'topic' | 'partition' | 'offset'>;

/** The claim as the transaction sends it, in the same round trip as BEGIN. */
export class PreparedClaim implements LimitedInsert {
  readonly text: string;
  readonly lockTimeoutMs: number;

  constructor(
    { text, lockTimeoutMs }: LimitedInsert,
    readonly values: readonly unknown[],
  ) {
    this.text = text;
    this.lockTimeoutMs = lockTimeoutMs;
  }
}

/** Our `processed_events` table: who handled what. Knows its place in the database once the start-up check has found it. */
export class Inbox {
  #table: string | undefined;
  /** By how long the claim may wait. */
  readonly #statements = new Map<number, LimitedInsert>();
  readonly #forMany = new Map<number, LimitedInsert>();

  /** `query`: outside of any handler's transaction. */
  constructor(
    private readonly claimTimeoutMs: number,
    private readonly query: (sql: string, values: readonly unknown[]) => Promise<unknown[]>,
  ) {}

  /** `table`: quoted and schema-qualified. */
  open(table: string): void {
    this.#table = table;
  }

  /**
   * `place`: of the record that brought the event. `timeoutMs`: of the handler; the claim waits for half of it at most, so that it is answered before the
   * delivery is killed, and a kill while it waits means that the database does not answer.
   */
  claim(place: ClaimPlace, event: { id: string; fingerprint: string }, timeoutMs: number): PreparedClaim {
    const statement = this.#statement(Math.min(this.claimTimeoutMs, Math.ceil(timeoutMs / 2)));
    const { consumer, topic, partition, offset } = place;
    const { id: eventId, fingerprint } = event;
    return new PreparedClaim(statement, claimValues({ consumer, eventId, topic, partition, offset, fingerprint }));
  }

  /** Of the topics, those of which one of the consumers has handled events, as its newest claims show. */
  async handledBefore(consumers: readonly string[], topics: readonly string[]): Promise<ReadonlySet<string>> {
    const rows = await this.query(handledBeforeStatement(this.#place()), [consumers, topics]);
    return new Set((rows as { topic: string }[]).map(({ topic }) => topic));
  }

  /** Of these events, those that the consumer has handled: a row that is found is committed. One that another transaction is about to commit is missing. */
  async handled(consumer: string, eventIds: readonly string[]): Promise<ReadonlySet<string>> {
    const rows = await this.query(handledEventsStatement(this.#place()), [consumer, eventIds]);
    return new Set((rows as { event_id: string }[]).map(({ event_id }) => event_id));
  }

  /** The claims of several events of one partition, in one statement. `timeoutMs`: the shortest of their handlers'. */
  claims(claims: readonly Claim[], timeoutMs: number): PreparedClaim {
    const waitMs = Math.min(this.claimTimeoutMs, Math.ceil(timeoutMs / 2));
    return new PreparedClaim(this.#made(this.#forMany, waitMs, claimsStatement), claimsValues(claims));
  }

  /** What takes those claims back. */
  release(claims: readonly Claim[]): { readonly text: string; readonly values: readonly unknown[] } {
    return { text: releaseStatement(this.#place()), values: claimsValues(claims) };
  }

  #statement(lockTimeoutMs: number): LimitedInsert {
    return this.#made(this.#statements, lockTimeoutMs, claimStatement);
  }

  #made(
    known: Map<number, LimitedInsert>,
    lockTimeoutMs: number,
    make: (table: string, lockTimeoutMs: number) => LimitedInsert,
  ): LimitedInsert {
    const table = this.#place();
    let found = known.get(lockTimeoutMs);
    if (found === undefined) known.set(lockTimeoutMs, (found = make(table, lockTimeoutMs)));
    return found;
  }

  #place(): string {
    if (this.#table === undefined) throw new Error('The inbox is used before the module has checked its table');
    return this.#table;
  }
}
