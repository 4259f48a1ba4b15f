import { setTimeout as sleep } from 'node:timers/promises';
import { Partitioners, type Kafka, type Producer } from 'kafkajs';
import type { DemoRecord } from './events.js';

const TICK_MS = 40;
const RETRY_MS = 250;

export interface Acknowledged {
  /** Ids of the events that Kafka has. */
  readonly ids: ReadonlySet<string>;
  /** Records beyond the first of their id. */
  readonly duplicates: number;
}

/**
 * Sends the records evenly over a time, in order, and keeps account of what Kafka acknowledged:
 * - one request at a time, so a record never overtakes one before it;
 * - what is not acknowledged is sent again under the same id, until it is; a copy that was stored nevertheless is a duplicate like any other.
 */
export class DemoProducer {
  readonly #ids = new Set<string>();
  #duplicates = 0;
  #producer: Producer | undefined;

  constructor(
    private readonly kafka: Kafka,
    private readonly topic: string,
    private readonly onFailure: (error: unknown) => void,
  ) {}

  get acknowledged(): Acknowledged {
    return { ids: this.#ids, duplicates: this.#duplicates };
  }

  async connect(): Promise<void> {
    this.#producer = this.kafka.producer({
      idempotent: true,
      maxInFlightRequests: 1,
      allowAutoTopicCreation: false,
      createPartitioner: Partitioners.DefaultPartitioner,
    });
    await this.#producer.connect();
  }

  /** Resolves when everything is acknowledged; rejects when the signal aborts. */
  async send(records: readonly DemoRecord[], flowMs: number, signal: AbortSignal): Promise<void> {
    const startedAt = performance.now();
    let next = 0;
    while (next < records.length) {
      const elapsed = (performance.now() - startedAt) / flowMs;
      const due = Math.min(records.length, Math.floor(elapsed * records.length) + 1);
      const batch = records.slice(next, due);
      if (batch.length > 0) await this.#sendUntilAcknowledged(batch, signal);
      next = Math.max(next, due);
      await sleep(TICK_MS, undefined, { signal });
    }
  }

  async close(): Promise<void> {
    await this.#producer?.disconnect();
  }

  async #sendUntilAcknowledged(records: readonly DemoRecord[], signal: AbortSignal): Promise<void> {
    let missing = records;
    for (;;) {
      signal.throwIfAborted();
      missing = await this.#sendOnce(missing);
      if (missing.length === 0) return;
      await sleep(RETRY_MS, undefined, { signal });
    }
  }

  /** Gives back what was not acknowledged. */
  async #sendOnce(records: readonly DemoRecord[]): Promise<readonly DemoRecord[]> {
    const stored = await this.#request(records);
    for (const { event, isDuplicate } of records) {
      if (!stored.has(event.partition)) continue;
      if (isDuplicate) this.#duplicates += 1;
      else this.#ids.add(event.id);
    }
    return records.filter(({ event }) => !stored.has(event.partition));
  }

  /** The partitions whose records are stored: after a leader change an answer may lack some of those that were sent to. */
  async #request(records: readonly DemoRecord[]): Promise<ReadonlySet<number>> {
    try {
      if (this.#producer === undefined) await this.connect();
      const answer = await this.#producer?.send({ topic: this.topic, acks: -1, messages: records.map(message) });
      return new Set(answer?.filter(({ errorCode }) => errorCode === 0).map(({ partition }) => partition));
    } catch (error) {
      // The outcome is unknown. A producer that has lost its sequence does not find it again, so the next try has a new one.
      this.onFailure(error);
      const failed = this.#producer;
      this.#producer = undefined;
      await failed?.disconnect().catch(this.onFailure);
      return new Set();
    }
  }
}

function message({ event: { id, customer, number, partition } }: DemoRecord) {
  const order = { id, customer, cents: 100, number };
  return { partition, key: customer, value: JSON.stringify(order), headers: { 'event-id': id } };
}
