import type { CheckedProducer } from '../kafka/checked-producer.js';
import type { ClusterReader } from '../kafka/cluster-reader.js';
import type { ResolvedOutbox } from '../options/resolve.js';
import type { Backoff } from '../shared/backoff.js';
import type { EmitEvent } from '../shared/events.js';
import type { Query } from '../shared/own-tables.js';
import type { TransactionScope } from '../transaction/transaction-scope.js';
import { DedupeKeys } from './dedupe-keys.js';
import { EventPublisher } from './event-publisher.js';
import { Outbox } from './outbox.js';
import { OutboxTables } from './outbox-tables.js';
import { Relay } from './relay.js';

const BACKOFF: Backoff = { delayMs: 500, factor: 2, maxDelayMs: 60_000, jitter: 'full' };

export interface OutboxRoomOptions extends ResolvedOutbox {
  readonly scope: TransactionScope;
  readonly query: Query;
  /** Two: what is sent directly does not wait for the relay. */
  readonly newProducer: () => CheckedProducer;
  readonly cluster: Pick<ClusterReader, 'existing'>;
  readonly emit: EmitEvent;
  readonly log: (message: string) => void;
  /** Between attempts of a row. Default from half a second to a minute. */
  readonly backoff?: Backoff;
}

/** Everything of events out, put together. */
export class OutboxRoom {
  readonly publisher: EventPublisher;
  readonly outbox: Outbox;
  readonly #tables: OutboxTables;
  readonly #relay: Relay;
  readonly #producers: readonly CheckedProducer[];
  readonly #runsRelay: boolean;

  constructor(options: OutboxRoomOptions) {
    const { scope, emit, log, cluster, backoff = BACKOFF } = options;
    const tables = new OutboxTables(options.query);
    const [direct, relayed] = [options.newProducer(), options.newProducer()];
    const dedupeKeys = new DedupeKeys(tables, options.dedupeRetentionMs, emit);
    const { batch, pollMs, leaseMs, attempts } = options;
    const limits = { batch, pollMs, leaseMs, attempts, backoff };
    const barrier = (read: { readonly run: string }) => scope.barrier(read);
    this.#tables = tables;
    this.#producers = [direct, relayed];
    this.#runsRelay = options.relay;
    this.#relay = new Relay({ ...limits, tables, producer: relayed, cluster, barrier, dedupeKeys, emit, log });
    this.outbox = new Outbox(tables, this.#relay, log);
    const stored = () => this.#relay.wake();
    this.publisher = new EventPublisher({ scope, tables, producer: direct, maxBytes: options.maxBytes, stored });
  }

  /** Where the start-up check found our tables, and whether those of the outbox are there. */
  open(schema: string, isThere: boolean): void {
    if (isThere) this.#tables.open(schema);
    else this.#tables.missIn(schema);
  }

  start(): void {
    if (this.#runsRelay && this.#tables.isThere) this.#relay.start();
  }

  /** Sends what it has begun to send, gives its shards back and closes the producers. */
  async stop(): Promise<void> {
    await this.#relay.stop();
    await Promise.all(this.#producers.map((producer) => producer.close()));
  }
}
