import { setTimeout as sleep } from 'node:timers/promises';
import { Partitioners, type Kafka } from 'kafkajs';
import { CheckedProducer } from '#src/kafka/checked-producer.js';
import { numbered } from './numbered.js';

export interface FlowPlan {
  readonly kafka: () => Kafka;
  readonly topic: string;
  readonly partitions: number;
  /** How many of each partition are sent at a time. */
  readonly batch: number;
  /** Whether more is wanted, when so many of each partition are acknowledged. */
  readonly wanted: (acknowledged: number) => boolean;
}

/**
 * Numbered events to every partition for as long as it runs, also while brokers are away: what was not acknowledged is sent again before anything
 * behind it, so that a record may be there twice, but the first copies are in order.
 */
export class Flow {
  readonly #producer: CheckedProducer;
  readonly #sending: Promise<void>;
  #acknowledged = 0;
  #stopped = false;

  constructor(private readonly plan: FlowPlan) {
    const createPartitioner = Partitioners.DefaultPartitioner;
    this.#producer = new CheckedProducer(plan.kafka, { compression: 'none', createPartitioner });
    this.#sending = this.#run();
  }

  /** Of each partition. */
  get acknowledged(): number {
    return this.#acknowledged;
  }

  /** Resolves with the number acknowledged in each partition. */
  async stop(): Promise<number> {
    this.#stopped = true;
    await this.#sending;
    await this.#producer.close();
    return this.#acknowledged;
  }

  async #run(): Promise<void> {
    const { topic, partitions, batch, wanted } = this.plan;
    while (!this.#stopped) {
      if (!wanted(this.#acknowledged)) {
        await sleep(20);
        continue;
      }
      const events = Array.from({ length: partitions }, (_, at) => numbered(at, batch, this.#acknowledged)).flat();
      const messages = events.map(({ id, partition, payload }) => ({
        topic,
        partition,
        value: JSON.stringify({ id, ...payload }),
        headers: { 'event-id': id },
      }));
      while (
        !(await this.#producer.send(messages).then(
          () => true,
          () => false, // some may be stored: all of it goes again
        ))
      )
        await sleep(100);
      this.#acknowledged += batch;
    }
  }
}
