import type { EmitEvent } from '../shared/events.js';
import type { Parking, Redelivery } from '../shared/parking.js';
import { OwnTables, type Query } from '../shared/own-tables.js';
import { DeadLetterCopies } from './dead-letter-copies.js';
import type { DeadLetterPublisher } from './dead-letters.js';
import { GroupParking } from './group-parking.js';
import { HeldKeys } from './held-keys.js';
import { LeasedRows } from './leased-rows.js';
import { ParkedEvents } from './parked-events.js';
import { RedeliveryWorker } from './redelivery-worker.js';
import { Replays } from './replays.js';
import { Tombstones } from './tombstones.js';

/** Those that the statements of this room name. */
const TABLES = /\b(?:parked_events|running_records|processed_events)\b/g;

const TIDY_MS = 60_000;

export interface ParkingRoomOptions {
  /** As it stands in Kafka, postfix included. */
  readonly groupId: string;
  readonly query: Query;
  readonly emit: EmitEvent;
  readonly log: (message: string) => void;
  readonly pollMs: number;
  /** How long tombstones are kept. */
  readonly discardedMs: number;
  /** undefined: off. */
  readonly deadLetters: { readonly publisher: DeadLetterPublisher; readonly stack: boolean } | undefined;
  /** Default one minute. */
  readonly tidyMs?: number;
}

/** Everything of parked events, put together: what the consumer asks (`parking`), what a person asks (`events`), and the worker that brings them back. */
export class ParkingRoom {
  readonly parking: Parking;
  readonly events: ParkedEvents;
  readonly #tables: OwnTables;
  readonly #replays: Replays;
  readonly #worker: RedeliveryWorker;

  constructor(options: ParkingRoomOptions) {
    const { groupId, emit, log, pollMs, deadLetters } = options;
    const tables = new OwnTables({ query: options.query, names: TABLES, of: 'parked events' });
    const keys = new HeldKeys(tables, groupId, () => this.#worker.wake());
    const copies = new DeadLetterCopies(deadLetters?.publisher, { stack: deadLetters?.stack ?? false });
    const rows = new LeasedRows(tables);
    const tombstones = new Tombstones(tables, options.discardedMs);
    const tidyMs = options.tidyMs ?? TIDY_MS;
    this.#tables = tables;
    this.#replays = new Replays({ tables, rows, keys, emit });
    this.#worker = new RedeliveryWorker({ rows, keys, copies, tombstones, emit, log, pollMs, tidyMs });
    this.parking = new GroupParking({ groupId, tables, keys, copies });
    this.events = new ParkedEvents(tables, keys, this.#replays, emit);
  }

  /** `schema`: where the start-up check found our tables. To be called before anything else. */
  open(schema: string): void {
    this.#tables.open(schema);
  }

  /** Redelivery and replays go through the consumer from now on. */
  start(redelivery: Redelivery): void {
    this.#replays.open(redelivery);
    this.#worker.start(redelivery);
  }

  /** Takes no more parked events and waits for those being delivered. To be called while the consumer still can end them. */
  stop(): Promise<void> {
    return this.#worker.stop();
  }
}
