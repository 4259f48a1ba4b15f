import type { EmitEvent } from '../shared/events.js';
import type { HandledEvents } from '../shared/handled-events.js';
import { within } from '../shared/within.js';
import type { ConsumedRecord } from './consumed-record.js';
import type { GroupDelivery } from './group-delivery.js';
import type { HandlerTable, RegisteredHandler } from './handler-table.js';
import type { Outage } from './outage.js';
import type { LaneWork, RecordDelivery } from './record-delivery.js';
import type { Slots } from './slots.js';

/** A connection that is half open would else hold the lane for as long as the system waits. */
const LONGEST_MS = 5000;

export interface DuplicateProbeParts {
  readonly handlers: HandlerTable;
  readonly delivery: RecordDelivery;
  readonly groups: GroupDelivery;
  readonly slots: Slots;
  readonly outage: Outage;
  readonly restarts: { readonly count: number };
  readonly handled: HandledEvents;
  readonly jsonDepth: number;
  readonly emit: EmitEvent;
}

interface Asked {
  readonly record: ConsumedRecord;
  /** One for each handler. */
  readonly eventIds: readonly string[];
}

/** What became of the records that were to be looked up. */
export interface Probed {
  /** Those that every handler of their topic has handled. */
  readonly duplicates: readonly ConsumedRecord[];
  /** How many were looked up, from the first on. */
  readonly asked: number;
}

const NOTHING: Probed = { duplicates: [], asked: 0 };

/**
 * Looks up many records at once, where those before them were duplicates:
 * - what is found is final: a committed row is never taken back, but for a crash of the server, and the offset waits for a barrier;
 * - what is missing may be at work elsewhere: only a claim tells;
 * - it ends in front of a record without a usable event id, and of one that something parked may concern;
 * - an error of it is nobody's failure: the claims meet what there is.
 */
export class DuplicateProbe {
  constructor(private readonly parts: DuplicateProbeParts) {}

  /** Records that other handlers run, or that nobody claims, cannot be told by their rows. */
  isFor(topic: string): boolean {
    const handlers = this.parts.handlers.handlersOf(topic);
    return (
      handlers.length > 0 &&
      handlers.every(({ profile, isEventHandler }) => isEventHandler && profile.transaction === 'database')
    );
  }

  /** Begins as a delivery does, in a slot. Undefined: interrupted, or the database did not answer. Never rejects. */
  async run(waiting: readonly ConsumedRecord[], lane: LaneWork): Promise<Probed | undefined> {
    try {
      return await this.#run(waiting, lane);
    } catch {
      return undefined; // see above
    }
  }

  async #run(waiting: readonly ConsumedRecord[], lane: LaneWork): Promise<Probed | undefined> {
    const handlers = this.parts.handlers.handlersOf(lane.topic);
    const asked = this.#askable(this.parts.groups.unconcerned(waiting, lane), handlers);
    if (asked.length === 0) return NOTHING;
    const slots = await this.parts.delivery.begin(lane);
    if (slots === 0) return undefined;
    const { count } = this.parts.restarts;
    try {
      const duplicates = await this.#find(asked, handlers);
      this.parts.outage.passed();
      // If the database began anew meanwhile, what was read may be gone.
      if (lane.interrupted.aborted || this.parts.restarts.count !== count) return undefined;
      for (const one of duplicates) this.#tell(one, handlers);
      return { duplicates: duplicates.map(({ record }) => record), asked: asked.length };
    } finally {
      this.parts.slots.release(slots);
    }
  }

  #askable(records: readonly ConsumedRecord[], handlers: readonly RegisteredHandler[]): Asked[] {
    const asked: Asked[] = [];
    for (const record of records) {
      const eventIds: string[] = [];
      for (const { profile } of handlers) {
        const eventId = profile.eventIdOf(record.view(profile.settings.decode, this.parts.jsonDepth));
        if (eventId === undefined) return asked;
        eventIds.push(eventId);
      }
      asked.push({ record, eventIds });
    }
    return asked;
  }

  async #find(asked: readonly Asked[], handlers: readonly RegisteredHandler[]): Promise<readonly Asked[]> {
    let found = asked;
    for (const [at, { profile }] of handlers.entries()) {
      if (found.length === 0) break;
      const eventIds = [...new Set(found.map((one) => one.eventIds[at]!))];
      const answer = this.parts.handled(profile.consumer, eventIds);
      if (!(await within(answer, LONGEST_MS))) throw new Error(`no answer within ${LONGEST_MS} ms`);
      const handled = await answer;
      found = found.filter((one) => handled.has(one.eventIds[at]!));
    }
    return found;
  }

  #tell({ record, eventIds }: Asked, handlers: readonly RegisteredHandler[]): void {
    const { topic, partition } = record;
    const place = { topic, partition, offset: record.message.offset, attempt: 1 };
    for (const [at, { profile }] of handlers.entries())
      this.parts.emit({ name: 'duplicate', ...place, consumer: profile.consumer, eventId: eventIds[at] });
  }
}
