import { setTimeout as sleep } from 'node:timers/promises';
import type { Facts } from './facts.js';
import type { SoakProducer } from './producer.js';
import type { Stage } from './stage.js';
import { CONSUMERS } from './workload.js';

const SAMPLE_MS = 2_000;

/**
 * Looks on while a run goes:
 * - when each partition moved last, as the workers tell it;
 * - whether the group's offset ever passes a record that has no effect and is not parked. The offset is read before the
 *   effects, so what is seen is true even if both go on meanwhile.
 */
export class Watcher {
  readonly passed: Facts['passed'][number][] = [];
  /** How often the group's offset of a partition went back. */
  setBacks = 0;
  readonly #movedAt = new Map<string, number>();
  readonly #looked = new Map<string, number>();
  #committed = new Map<string, number>();
  #watching: Promise<void> | undefined;
  readonly #end = new AbortController();

  constructor(
    private readonly stage: Stage,
    private readonly producers: ReadonlyMap<string, SoakProducer>,
    private readonly hasParking: boolean,
  ) {}

  start(): void {
    this.#watching = this.#watch();
  }

  async stop(): Promise<void> {
    this.#end.abort();
    await this.#watching;
  }

  moved(partition: string): void {
    this.#movedAt.set(partition, performance.now());
  }

  /** Partitions that have not moved since then. */
  stillSince(since: number, partitions: Iterable<string>): string[] {
    return [...partitions].filter((partition) => (this.#movedAt.get(partition) ?? 0) <= since);
  }

  async #watch(): Promise<void> {
    while (!this.#end.signal.aborted) {
      // Services are down on purpose; what was missed is looked at with the next sample.
      await this.#sample().catch(() => undefined);
      await sleep(SAMPLE_MS, undefined, { signal: this.#end.signal }).catch(() => undefined);
    }
  }

  async #sample(): Promise<void> {
    const committed = await this.stage.committed();
    for (const { topic, partition, offset } of committed) {
      const name = `${topic}/${partition}`;
      if (offset < (this.#committed.get(name) ?? 0)) this.setBacks += 1;
      this.#committed.set(name, offset);
      await this.#lookAt(topic, partition, offset);
    }
  }

  async #lookAt(topic: string, partition: number, committed: number): Promise<void> {
    const name = `${topic}/${partition}`;
    const from = this.#looked.get(name) ?? 0;
    const offsets = this.producers.get(topic)?.offsets;
    const passed: { offset: number; id: string }[] = [];
    for (let offset = from; offset < committed; offset++) {
      const id = offsets?.get(`${partition}/${offset}`);
      if (id !== undefined) passed.push({ offset, id });
    }
    const finished = await this.#finished(
      topic,
      passed.map(({ id }) => id),
    );
    for (const { offset, id } of passed) if (!finished.has(id)) this.passed.push({ topic, partition, offset, id });
    this.#looked.set(name, Math.max(from, committed));
  }

  async #finished(topic: string, ids: readonly string[]): Promise<Set<string>> {
    if (ids.length === 0) return new Set();
    const consumer = CONSUMERS.find((one) => one.topic === topic)?.consumer;
    const parked = this.hasParking
      ? ` UNION ALL SELECT event_id FROM parked_events WHERE consumer = $1 AND event_id = ANY($2)`
      : '';
    const { rows } = await this.stage.database.query<{ event_id: string }>(
      `SELECT event_id FROM effects WHERE consumer = $1 AND event_id = ANY($2)${parked}`,
      [consumer, ids],
    );
    return new Set(rows.map(({ event_id }) => event_id));
  }
}
