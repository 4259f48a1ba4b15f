import { setTimeout as sleep } from 'node:timers/promises';
import { backoffMs, type Backoff } from '../shared/backoff.js';
import type { Claim, Claimed } from '../inbox/claim.js';
import type { Inbox } from '../inbox/inbox.js';
import type { BatchDelivery } from '../shared/batch-delivery.js';
import type { DeliveryInProgress, DeliveryReport } from '../shared/delivery.js';
import { IdempotencyError } from '../shared/errors.js';
import { emitAt, placeOf, type EmitEvent } from '../shared/events.js';
import type { Durability } from '../shared/handler-profile.js';
import type { SharedEnd, SharedTransaction } from '../shared/shared-transaction.js';
import type { OpenTransaction, Piece } from '../transaction/open-transaction.js';
import type { TransactionScope } from '../transaction/transaction-scope.js';
import { isOutdated } from './deferred-constraints.js';
import type { HandlerCatalogue } from './handler-catalogue.js';
import { eventIdOf } from './identity/event-id.js';
import { fingerprint } from './identity/fingerprint.js';
import { reportOf } from './report-of.js';

export interface GroupTransactionParts {
  readonly handlers: HandlerCatalogue;
  readonly inbox: Inbox;
  readonly scope: TransactionScope;
  readonly emit: EmitEvent;
  /** What to send behind each record, for deferred constraints. */
  readonly constraintCheck: string | undefined;
  /** To be called when that names what is gone. */
  readonly checkOutdated: () => void;
  /** Handlers of several records run at once. */
  readonly interleaved: boolean;
}

/** What a handler that is to run gets of it. */
export class Entry {
  constructor(
    readonly transaction: OpenTransaction,
    readonly piece: Piece,
  ) {}
}

/** What became of a delivery whose event was claimed. */
class ClaimedDelivery {
  /** Its handler was called. */
  isEntered = false;
  hasRun = false;
}

/** Between tries to take claims back: as long as it takes, for their events would not run. */
const RELEASE_RETRY: Backoff = { delayMs: 200, factor: 2, maxDelayMs: 5000, jitter: 'none' };

/**
 * The transaction of a group of records:
 * - one claim, in the same round trip as BEGIN, for every record and handler, in an order that is the same for everybody;
 * - COMMIT only if everything claimed has run;
 * - a handler that ends it by hand would commit the claims of records that have not run: those are taken back.
 */
export class GroupTransaction implements SharedTransaction {
  readonly opened: Promise<void>;
  #size: number;
  #tellOpened: () => void = () => {};
  #opening: Promise<OpenTransaction> | undefined;
  #transaction: OpenTransaction | undefined;
  /** It is begun, and what is claimed is known. */
  #isOpen = false;
  readonly #claimed = new Map<DeliveryInProgress, ClaimedDelivery>();
  /** How many of the claimed have not run. */
  #toRun = 0;

  constructor(
    private readonly parts: GroupTransactionParts,
    private readonly deliveries: readonly (readonly DeliveryInProgress[])[],
  ) {
    this.#size = deliveries.length;
    this.opened = new Promise((resolve) => (this.#tellOpened = resolve));
  }

  get size(): number {
    return this.#size;
  }

  /** For a delivery whose handler is to run: its piece of the transaction, or undefined if its event is a duplicate. The first that comes opens it. */
  enter(delivery: DeliveryInProgress): Promise<Entry | undefined> | Entry | undefined {
    if (this.#isOpen) return this.#enter(delivery, this.#transaction!);
    this.#opening ??= this.#open(delivery);
    return this.#opening.then((transaction) => this.#enter(delivery, transaction));
  }

  #enter(delivery: DeliveryInProgress, transaction: OpenTransaction): Entry | undefined {
    let isClaimed = false;
    for (const one of delivery.members) {
      const claimed = this.#claimed.get(one);
      if (claimed === undefined) continue;
      claimed.isEntered = true;
      isClaimed = true;
    }
    return isClaimed ? new Entry(transaction, transaction.beginPiece()) : undefined;
  }

  /** What is told of a delivery that failed with this error. `entry`: undefined, if it did not get that far. */
  reportOf(error: unknown, delivery: DeliveryInProgress, entry: Entry | undefined): DeliveryReport {
    const report = reportOf(error, entry?.transaction);
    if (report.outcome !== 'failed' || delivery.killed !== undefined) return report;
    const isConsequence = entry?.transaction.isBrokenByOther(entry.piece) === true;
    return isConsequence ? { ...report, isConsequence } : report;
  }

  async claim(batch: BatchDelivery): Promise<readonly DeliveryInProgress[]> {
    try {
      await (this.#opening ??= this.#open(batch));
      return batch.all.slice(0, this.#size).filter((delivery) => this.#claimed.has(delivery));
    } catch (error) {
      batch.report(reportOf(error, this.#transaction));
      throw error;
    }
  }

  /** Its handler has settled. `ended` gets what was wrong with that. */
  ran(delivery: DeliveryInProgress, { transaction, piece }: Entry, ended: (error?: unknown) => void): void {
    transaction.endPiece(piece, this.parts.constraintCheck, (error) => {
      if (error === undefined) this.#noteRun(delivery);
      else if (isOutdated(error)) this.parts.checkOutdated();
      ended(error);
    });
  }

  #noteRun({ members }: DeliveryInProgress): void {
    for (const one of members) {
      const claimed = this.#claimed.get(one);
      if (claimed === undefined || claimed.hasRun) continue;
      claimed.hasRun = true;
      this.#toRun -= 1;
    }
  }

  async commit(): Promise<SharedEnd> {
    const transaction = this.#transaction;
    if (transaction === undefined || this.#toRun > 0) {
      await this.rollback();
      return { kind: 'refused', error: notRun(this.#toRun), isOutage: false };
    }
    try {
      // Duplicates alone write nothing.
      if (this.#claimed.size === 0) await transaction.rollback();
      else await this.#commitInTime(transaction);
    } catch (error) {
      if (!IdempotencyError.is(error, 'COMMIT_UNKNOWN'))
        return { kind: 'refused', error, isOutage: transaction.isOutage };
      for (const delivery of this.#claimed.keys()) this.parts.emit({ name: 'unknown', error, ...placeOf(delivery) });
      return { kind: 'unknown', error };
    }
    this.#forEach((delivery) => {
      emitAt(this.parts.emit, this.#claimed.has(delivery) ? 'processed' : 'duplicate', delivery);
    });
    return { kind: 'committed' };
  }

  async rollback(): Promise<void> {
    await this.#transaction?.rollback(); // of one that has ended already: nothing
    if (this.#transaction?.isEndedByHand === true) await this.#takeBack();
  }

  /** Of those that no handler was called for: what a handler wrote may be committed with its claim. */
  async #takeBack(): Promise<void> {
    const untouched = [...this.#claimed].filter(([, { isEntered }]) => !isEntered).map(([delivery]) => delivery);
    const { text, values } = this.parts.inbox.release(untouched.map(claimOf));
    for (let tries = 1; ; tries += 1) {
      try {
        await this.parts.scope.run((manager) => manager.query(text, [...values]));
        return;
      } catch {
        await sleep(backoffMs(RELEASE_RETRY, tries)); // the database is away: that is told by what else needs it
      }
    }
  }

  /** No delivery is at work any more that could be killed, so a COMMIT without an answer is given up here. */
  async #commitInTime(transaction: OpenTransaction): Promise<void> {
    const timeoutMs = this.#shortestTimeoutMs();
    const giveUp = () => transaction.destroy(new Error(`COMMIT was not answered within ${timeoutMs} ms`));
    const timer = setTimeout(giveUp, timeoutMs);
    try {
      await transaction.commit();
    } finally {
      clearTimeout(timer);
    }
  }

  async #open(first: DeliveryInProgress): Promise<OpenTransaction> {
    const claim = this.parts.inbox.claims(this.#claims(), this.#shortestTimeoutMs());
    const durability = this.#strictestDurability();
    this.#forEach((delivery) => (delivery.durability = durability));
    first.isOpening = true;
    try {
      const transaction = await this.parts.scope.open({
        owner: this.#owner(),
        isolation: this.#handlerOf(first).settings.isolation,
        durability,
        claim,
        onBegin: (begun) => first.onKill((error) => begun.destroy(error)),
      });
      this.#transaction = transaction;
      if (first.killed !== undefined) {
        transaction.destroy(first.killed); // it came while the transaction was opening
        throw first.killed;
      }
      this.#note(transaction.claimed);
      if (this.parts.interleaved) transaction.pipeline();
      this.#isOpen = true;
      this.#tellOpened();
      return transaction;
    } finally {
      first.isOpening = false;
    }
  }

  /** A record one of whose handlers finds no id in it leaves, with all behind it. Throws if it is the first. */
  #claims(): Claim[] {
    const claims: Claim[] = [];
    for (let at = 0; at < this.deliveries.length; at += 1) {
      const before = claims.length;
      try {
        for (const delivery of this.deliveries[at]!) claims.push(this.#claim(delivery));
      } catch (error) {
        claims.length = before; // all of a record, or none
        if (at === 0) throw error;
        this.#size = at;
        break;
      }
    }
    return claims;
  }

  #claim(delivery: DeliveryInProgress): Claim {
    delivery.eventId ??= eventIdOf(this.#handlerOf(delivery).id, delivery);
    return claimOf(delivery);
  }

  #note([answer]: readonly Record<string, unknown>[]): void {
    const isOurs = claimedIn(answer!['inserted'] as Claimed);
    this.#forEach((delivery) => {
      if (!isOurs(delivery)) return;
      this.#claimed.set(delivery, new ClaimedDelivery());
      this.#toRun += 1;
    });
  }

  /** Those of the records that are in it. */
  #forEach(use: (delivery: DeliveryInProgress) => void): void {
    for (let at = 0; at < this.#size; at += 1) this.deliveries[at]!.forEach(use);
  }

  #shortestTimeoutMs(): number {
    return Math.min(...this.deliveries[0]!.map((delivery) => this.#handlerOf(delivery).settings.timeoutMs));
  }

  #strictestDurability(): Durability {
    const wanted = this.deliveries[0]!.map((delivery) => this.#handlerOf(delivery).settings.durability);
    return wanted.includes('commit') ? 'commit' : 'window';
  }

  #handlerOf({ consumer }: DeliveryInProgress) {
    const handler = this.parts.handlers.called(consumer);
    if (handler === undefined) throw new Error(`${consumer} is not @Idempotent(), so it cannot be part of a group`);
    return handler;
  }

  #owner(): string {
    const [first, last] = [this.deliveries[0]![0]!, this.deliveries[this.#size - 1]![0]!];
    const consumers = this.deliveries[0]!.map(({ consumer }) => `'${consumer}'`).join(', ');
    return `consumer ${consumers}, ${first.topic}[${first.partition}]@${first.offset}-${last.offset}`;
  }
}

function claimOf({ consumer, topic, partition, offset, eventId, rawValue }: DeliveryInProgress): Claim {
  return { consumer, topic, partition, offset, eventId: eventId!, fingerprint: fingerprint(rawValue) }; // the id was set when it was claimed
}

function claimedIn(claimed: Claimed): (delivery: DeliveryInProgress) => boolean {
  if (claimed === true) return () => true;
  const won = new Set(claimed.map(([consumer, offset]) => `${offset} ${consumer}`));
  return ({ consumer, offset }) => won.has(`${offset} ${consumer}`);
}

function notRun(count: number): IdempotencyError {
  return new IdempotencyError(
    'HANDLER_FAILED',
    `${count} of the events claimed for a shared transaction were not run, so it was rolled back`,
    { retryable: true },
  );
}
