import type { DataSource, EntityManager, QueryRunner } from 'typeorm';
import type { EmitEvent } from '../shared/events.js';
import { AsyncSlot } from '../shared/async-slot.js';
import type { Frame } from './savepoint-order.js';

/** What joins inside a context: our own transaction, or one the caller opened and lent with `join`. */
export interface Joinable {
  /** Named in errors and events. */
  readonly owner: string;
  readonly manager: EntityManager;
  /** What TypeORM is to use in this context. After the end it refuses every statement. */
  readonly queryRunner: QueryRunner;
  readonly ended: boolean;
  readonly emit: EmitEvent;
  /** A transaction inside this one: a savepoint. */
  nested(request: NestedRequest): Promise<unknown>;
  /** Calls it when COMMIT was acknowledged. Never for a transaction whose end is not in our hands. */
  afterCommit(listener: () => void): void;
}

export interface NestedRequest {
  readonly isolation: unknown;
  readonly work: (manager: EntityManager) => Promise<unknown>;
}

/** Who enters a context. */
interface Entrant {
  /** `undefined` hides outer ones of that DataSource: that is `escape`. */
  readonly transaction: Joinable | undefined;
  /** The savepoint the code belongs to. */
  readonly frame?: Frame;
  /** Set while a savepoint's own SAVEPOINT, RELEASE or ROLLBACK TO is on its way. */
  readonly control?: boolean;
}

/** One link of the chain of contexts. */
class ContextEntry {
  readonly transaction: Joinable | undefined;
  readonly frame: Frame | undefined;
  readonly control: boolean;

  constructor(
    readonly dataSource: DataSource,
    { transaction, frame, control }: Entrant,
    readonly outer: ContextEntry | undefined,
  ) {
    this.transaction = transaction;
    this.frame = frame;
    this.control = control === true;
  }
}

const slot = new AsyncSlot<ContextEntry>('transaction');

export function enter<T>(dataSource: DataSource, entrant: Entrant, work: () => T): T {
  return slot.run(new ContextEntry(dataSource, entrant, slot.current), work);
}

/** Runs `work` as if no transaction of this DataSource were open. */
export function outside<T>(dataSource: DataSource, work: () => T): T {
  return current(dataSource) === undefined ? work() : enter(dataSource, { transaction: undefined }, work);
}

/** The transaction that work on this DataSource joins here; it may have ended already. */
export function current(dataSource: DataSource): Joinable | undefined {
  for (let entry = slot.current; entry !== undefined; entry = entry.outer) {
    if (entry.dataSource === dataSource) return entry.transaction;
  }
  return undefined;
}

/** The innermost entry of that very transaction, also from inside `escape`: its manager may be used there by hand. */
export function entryOf(transaction: Joinable): ContextEntry | undefined {
  for (let entry = slot.current; entry !== undefined; entry = entry.outer) {
    if (entry.transaction === transaction) return entry;
  }
  return undefined;
}
