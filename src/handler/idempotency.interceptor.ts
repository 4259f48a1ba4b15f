import { Inject, Injectable, type CallHandler, type ExecutionContext, type NestInterceptor } from '@nestjs/common';
import { Observable } from 'rxjs';
import { Inbox } from '../inbox/inbox.js';
import { deliveryInProgress, type DeliveryInProgress, type DeliveryReport } from '../shared/delivery.js';
import { IdempotencyError } from '../shared/errors.js';
import { emitAt, type EmitEvent } from '../shared/events.js';
import type { RowRemoval } from '../shared/parking.js';
import type { Durability } from '../shared/handler-profile.js';
import { EMIT_EVENT } from '../shared/tokens.js';
import type { ClaimRequest } from '../transaction/begin-query.js';
import { NextTransaction } from '../transaction/next-transaction.js';
import type { OpenRequest, OpenTransaction, Piece } from '../transaction/open-transaction.js';
import { TransactionScope } from '../transaction/transaction-scope.js';
import { calledAgain, transportMissing } from './called-wrongly.js';
import type { Entry, GroupTransaction } from './group-transaction.js';
import { HandlerCatalogue, type IdempotentHandler } from './handler-catalogue.js';
import { eventIdOf } from './identity/event-id.js';
import { fingerprint } from './identity/fingerprint.js';
import { LastValue } from './last-value.js';
import { reportOf } from './report-of.js';

const PROCESSED: DeliveryReport = { outcome: 'processed' };

/**
 * Runs an `@Idempotent()` handler in the transaction of its claim, and tells the transport how that ended. Whatever Nest, a pipe or an exception
 * filter makes of an error, the report carries the original one.
 */
@Injectable()
export class IdempotencyInterceptor implements NestInterceptor {
  constructor(
    @Inject(HandlerCatalogue) private readonly handlers: HandlerCatalogue,
    @Inject(Inbox) private readonly inbox: Inbox,
    @Inject(TransactionScope) private readonly scope: TransactionScope,
    @Inject(EMIT_EVENT) private readonly emit: EmitEvent,
  ) {}

  intercept(context: ExecutionContext, next: CallHandler): Observable<unknown> {
    const handler = this.handlers.handlerOf(context.getHandler());
    const delivery = deliveryInProgress();
    if (handler === undefined) return next.handle();
    if (delivery === undefined) throw transportMissing(handler.consumer);
    if (delivery.taken) {
      // Bound twice: we are inside the transaction of the first. Anything else is an interceptor in front that subscribes again, as retry() does.
      if (this.scope.active !== undefined) return next.handle();
      throw calledAgain(delivery);
    }
    delivery.taken = true;
    // Whoever made it is of this room: the consumer only hands it on.
    const group = delivery.shared as GroupTransaction | undefined;
    return valueOf(group === undefined ? this.#settle(handler, delivery, next) : this.#settleIn(group, delivery, next));
  }

  /** Reports the outcome, then lets Nest have value or error. */
  async #settle(handler: IdempotentHandler, delivery: DeliveryInProgress, next: CallHandler): Promise<unknown> {
    let transaction: OpenTransaction | undefined;
    try {
      // 1. Identify. A parked event keeps the id it was parked with.
      delivery.eventId ??= eventIdOf(handler.id, delivery);

      // 2. Open the transaction and claim, in one round trip. The claim decides: no row, no run.
      const opened = await this.#opening(handler, delivery, delivery.eventId);
      if (delivery.killed !== undefined) opened.destroy(delivery.killed); // it came meanwhile
      delivery.opened();
      transaction = opened;
      if (delivery.removal !== undefined) await removeParked(transaction, delivery.removal);
      if (transaction.claimed.length === 0) return await this.#skip(transaction, delivery);
      emitAt(this.emit, 'claimed', delivery);

      // 3. Run the handler. If it is the first one here since the assignment, it leaves a mark for the case that it kills the process.
      const cleared = delivery.clearToRun();
      if (cleared !== undefined) await cleared;
      const value = await handled(next, { transaction, piece: undefined, delivery, settled: atOnce });
      emitAt(this.emit, 'handled', delivery);

      // 4. Commit. Whatever its answer, it is the truth; a kill that comes meanwhile makes it unknown. Behind it goes what the next record begins with.
      await transaction.commit(this.#next(handler, delivery));
      delivery.report(PROCESSED);
      emitAt(this.emit, 'processed', delivery);
      return value;
    } catch (error) {
      delivery.isOpening = false;
      const blamed = transaction === undefined ? error : transaction.blamed(error);
      await transaction?.rollback(); // of one that has ended already: nothing
      delivery.report(reportOf(blamed, transaction));
      throw blamed;
    }
  }

  /** The same as a part of a transaction that the consumer ends, and only then is what is reported here true. */
  async #settleIn(group: GroupTransaction, delivery: DeliveryInProgress, next: CallHandler): Promise<unknown> {
    let entry: Entry | undefined;
    try {
      const entering = group.enter(delivery);
      entry = entering instanceof Promise ? await entering : entering; // a wait that is not needed costs for every record
      if (entry === undefined) {
        delivery.report({ outcome: 'duplicate' });
        return undefined;
      }
      this.#tell('claimed', delivery);
      const cleared = delivery.clearToRun();
      if (cleared !== undefined) await cleared;
      const { transaction, piece } = entry;
      const settled = group.ran.bind(group, delivery, entry);
      const value = await handled(next, { transaction, piece, delivery, settled });
      delivery.outliveKill();
      this.#tell('handled', delivery);
      delivery.report(PROCESSED);
      return value;
    } catch (error) {
      const blamed = entry === undefined ? error : entry.transaction.blamed(error);
      delivery.report(group.reportOf(blamed, delivery, entry));
      throw blamed;
    }
  }

  #tell(name: 'claimed' | 'handled', { members }: DeliveryInProgress): void {
    for (const one of members) emitAt(this.emit, name, one);
  }

  #opening(handler: IdempotentHandler, delivery: DeliveryInProgress, eventId: string): Promise<OpenTransaction> {
    delivery.isOpening = true;
    // Whoever made it is of this room: the consumer only sees that it is used or discarded.
    const ahead = delivery.ahead as NextTransaction | undefined;
    delivery.ahead = undefined;
    return ahead?.take() ?? this.scope.open(this.#request(handler, delivery, eventId));
  }

  #request(handler: IdempotentHandler, delivery: DeliveryInProgress, eventId: string): OpenRequest {
    // A parked event's row must not come back when others have acted on its absence: later events of its key, and whoever asked for the replay.
    delivery.durability = delivery.removal === undefined ? handler.settings.durability : 'commit';
    const event = { id: eventId, fingerprint: fingerprint(delivery.rawValue) };
    return new DeliveryRequest(delivery, handler, this.inbox.claim(delivery, event, handler.settings.timeoutMs));
  }

  /** What the delivery that follows this one begins with. One without an id tells so when it runs. */
  #next(handler: IdempotentHandler, delivery: DeliveryInProgress): NextTransaction | undefined {
    const successor = delivery.successor?.();
    if (successor === undefined) return undefined;
    try {
      successor.eventId ??= eventIdOf(handler.id, successor);
    } catch {
      return undefined;
    }
    const next = new NextTransaction(this.#request(handler, successor, successor.eventId));
    successor.ahead = next;
    return next;
  }

  /** A duplicate writes nothing, unless it is a parked event whose row goes. */
  async #skip(transaction: OpenTransaction, delivery: DeliveryInProgress): Promise<undefined> {
    if (delivery.removal === undefined) await transaction.rollback();
    else await transaction.commit();
    delivery.report({ outcome: 'duplicate' });
    emitAt(this.emit, 'duplicate', delivery);
  }
}

/** A class, as whatever lives as long as a transaction. */
class DeliveryRequest implements OpenRequest {
  readonly owner: string;
  readonly isolation: OpenRequest['isolation'];
  readonly durability: Durability;

  constructor(
    private readonly delivery: DeliveryInProgress,
    { consumer, settings }: IdempotentHandler,
    readonly claim: ClaimRequest,
  ) {
    this.owner = `consumer '${consumer}', ${delivery.topic}[${delivery.partition}]@${delivery.offset}`;
    this.isolation = settings.isolation;
    this.durability = delivery.durability;
  }

  onBegin(begun: Pick<OpenTransaction, 'destroy'>): void {
    this.delivery.onKill((error) => begun.destroy(error));
  }
}

/** Before the handler runs, so that nobody changes or takes the row meanwhile. */
async function removeParked(transaction: OpenTransaction, removal: RowRemoval): Promise<void> {
  const query = (sql: string, parameters: unknown[]) =>
    transaction.within(() => transaction.manager.query<unknown>(sql, parameters));
  if ((await removal.removeWith(query)) === 'removed') return;
  throw new IdempotencyError(
    'PARKED_CHANGED',
    'The parked event was changed, taken or processed by somebody else meanwhile, so it is not delivered from here',
    { retryable: true },
  );
}

/** As rxjs's from(), which makes a promise more. */
function valueOf(settling: Promise<unknown>): Observable<unknown> {
  return new Observable((subscriber) => {
    settling.then(
      (value) => {
        subscriber.next(value);
        subscriber.complete();
      },
      (error: unknown) => subscriber.error(error),
    );
  });
}

interface Handling {
  readonly transaction: OpenTransaction;
  readonly piece: Piece | undefined;
  readonly delivery: DeliveryInProgress;
  /** What is to be done when the handler has settled. */
  readonly settled: (ended: (error?: unknown) => void) => void;
}

function atOnce(ended: () => void): void {
  ended();
}

/**
 * The last value of the handler, once it has settled. handle() is called, and subscribed to, inside the transaction's context; what waits for this runs outside of it
 * again. A kill ends the transaction and this wait, whatever the handler is doing.
 */
function handled(next: CallHandler, { transaction, piece, delivery, settled }: Handling): Promise<unknown> {
  return new Promise((resolve, reject) => {
    delivery.onKill((error) => {
      transaction.destroy(error);
      reject(error);
    });
    delivery.isHandling = true;
    const done = (last: unknown) => settled((fault) => (fault === undefined ? resolve(last) : reject(fault as Error)));
    transaction.within(() => next.handle().subscribe(new LastValue(delivery, done, reject)), piece);
  });
}
