import { setTimeout as sleep } from 'node:timers/promises';
import { backoffMs, type Backoff } from '../shared/backoff.js';
import type { DeliveryInProgress } from '../shared/delivery.js';
import { IdempotencyError } from '../shared/errors.js';
import type { FailedAttempt, ParkReason } from '../shared/parking.js';
import { errorChain } from '../shared/sql-state.js';
import type { ConsumedRecord } from './consumed-record.js';
import { textOf, type DeliveryLog } from './delivery-log.js';
import type { RegisteredHandler } from './handler-table.js';
import type { Outage } from './outage.js';
import type { LaneWork, Settled } from './record-delivery.js';

/** Between tries to park, or to look at what is parked: for as long as it takes, since the record is not final before. */
const PARKING_RETRY: Backoff = { delayMs: 200, factor: 2, maxDelayMs: 10_000, jitter: 'none' };
/** Where it is the database that is away: it shall not be waited for longer than for the probe of an outage. */
const DATABASE_RETRY_MS = 1000;
const PARKED: Settled = { duplicate: false, durable: true };

/** A record and one of its handlers. */
export interface Work {
  readonly handler: RegisteredHandler;
  readonly record: ConsumedRecord;
  readonly lane: LaneWork;
}

/** What has been tried of one record by one handler. */
export interface Tried {
  failed: number;
  reruns: number;
  readonly failures: FailedAttempt[];
}

/** What parking has to do with one record: what is parked already may stand in its way, and where no attempt has helped it is parked itself. */
export class RecordParking {
  constructor(
    private readonly parts: { readonly outage: Outage; readonly jsonDepth: number },
    private readonly log: DeliveryLog,
  ) {}

  /** What was parked before may stand in the way of this record: an earlier event of its key, or the record itself. */
  async gate(work: Work): Promise<'run' | Settled | undefined> {
    const { handler, record, lane } = work;
    const { consumer, settings } = handler.profile;
    const eventId = handler.profile.eventIdOf(record.view(settings.decode, this.parts.jsonDepth));
    const request = { record: record.stored, consumer, eventId, holdKey: settings.holdKey };
    let asked = lane.parking.gate(request);
    if (asked === undefined) return 'run';
    const verdict = await this.#persist(work, async () => {
      const answer = asked ?? lane.parking.gate(request);
      asked = undefined;
      return (await answer) ?? 'run';
    });
    switch (verdict) {
      case 'held':
        this.log.parked(consumer, record, { state: 'held', reason: 'behind', attempt: 0, eventId });
        return PARKED;
      case 'parked':
        this.log.parkedBefore(consumer, record);
        return PARKED;
      default:
        return verdict;
    }
  }

  async park(
    work: Work,
    delivery: DeliveryInProgress,
    { reason, error, tried }: { reason: ParkReason; error: unknown; tried: Tried },
  ): Promise<Settled | undefined> {
    const { handler, record, lane } = work;
    const { consumer, settings } = handler.profile;
    const { failed: attempts, failures } = tried;
    const { eventId } = delivery;
    const { holdKey, redelivery } = settings;
    const request = {
      record: record.stored,
      consumer,
      eventId,
      reason,
      error,
      failures,
      attempts,
      holdKey,
      redelivery,
    };
    const state = await this.#persist(work, () => lane.parking.park(request));
    if (state === undefined) return undefined;
    this.log.parked(consumer, record, { state, reason, error, attempt: delivery.attempt, eventId });
    return PARKED;
  }

  /** As long as it takes; undefined once the lane is interrupted, for then the record is another's. */
  async #persist<T>(work: Work, action: () => Promise<T>): Promise<T | undefined> {
    const { lane, record, handler } = work;
    for (let tries = 1; !lane.interrupted.aborted; tries += 1) {
      try {
        const done = await action();
        this.parts.outage.passed();
        return done;
      } catch (error) {
        const code = IdempotencyError.is(error) ? error.code : 'PARK_FAILED';
        const isDatabase = isDatabaseAway(error);
        if (isDatabase && !lane.interrupted.aborted) this.parts.outage.suffered(textOf(error));
        const delayMs = isDatabase ? DATABASE_RETRY_MS : backoffMs(PARKING_RETRY, tries);
        const detail = this.log.notParked(handler.profile.consumer, record, { code, error, delayMs });
        lane.retrying = { since: lane.retrying?.since ?? new Date(), code, detail };
        await pauseOf(lane, delayMs);
      }
    }
    return undefined;
  }
}

/** Interrupted, it ends at once: the caller looks. */
export async function pauseOf({ interrupted }: LaneWork, ms: number): Promise<void> {
  await sleep(ms, undefined, { signal: interrupted }).catch(() => undefined); // the abort is all it can be
}

function isDatabaseAway(error: unknown): boolean {
  return errorChain(error).some((link) => IdempotencyError.is(link, 'DATABASE_UNAVAILABLE'));
}
