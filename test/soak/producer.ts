import { setTimeout as sleep } from 'node:timers/promises';
import { Partitioners, type Kafka, type Message, type Producer } from 'kafkajs';
import type { Send } from './facts.js';
import type { Random } from './random.js';
import { HAS_PARKING, KEYS, PARTITIONS, type SoakEvent } from './workload.js';

const TICK_MS = 100;
const DUPLICATES = 0.05;
const FAILURES = 0.002;
const POISON = 0.0003;

/** What a producer's topic takes in: the next event of one partition. */
interface Outgoing {
  readonly event: SoakEvent;
  readonly partition: number;
}

/**
 * Sends events of one topic, one record per partition and request, and keeps account of the answers: a resolved send is not
 * a stored one, so a record counts as acknowledged only if its partition stands in the answer without an error.
 */
export class SoakProducer {
  readonly sends: Send[] = [];
  /** Where the acknowledged records stand: `partition/offset` to id. */
  readonly offsets = new Map<string, string>();
  readonly #producer: Producer;
  readonly #seqs = new Map<string, number>();
  readonly #earlier: Outgoing[][] = Array.from({ length: PARTITIONS }, () => []);
  #sending: Promise<void> | undefined;
  #stopped = false;

  constructor(
    client: Kafka,
    private readonly topic: string,
    private readonly random: Random,
  ) {
    this.#producer = client.producer({
      allowAutoTopicCreation: false,
      metadataMaxAge: 1_000, // after a request that timed out kafkajs asks the same leader again until then
      createPartitioner: Partitioners.DefaultPartitioner,
    });
  }

  get acknowledged(): number {
    return this.offsets.size;
  }

  async start(): Promise<void> {
    await this.#producer.connect();
    this.#sending = this.#run();
  }

  async stop(): Promise<void> {
    this.#stopped = true;
    await this.#sending;
    await this.#producer.disconnect();
  }

  async #run(): Promise<void> {
    while (!this.#stopped) {
      await this.#send(Array.from({ length: PARTITIONS }, (_, partition) => this.#next(partition)));
      await sleep(TICK_MS);
    }
  }

  async #send(batch: readonly Outgoing[]): Promise<void> {
    const stored = new Map<number, string>();
    try {
      const answer = await this.#producer.send({ topic: this.topic, acks: -1, messages: batch.map(messageOf) });
      for (const { partition, errorCode, baseOffset } of answer)
        if (errorCode === 0 && baseOffset !== undefined) stored.set(partition, baseOffset);
    } catch {
      // A broker is down: nothing is known of these records, and the checker looks for them in the topic.
    }
    for (const { event, partition } of batch) {
      const offset = stored.get(partition);
      if (offset !== undefined) this.offsets.set(`${partition}/${offset}`, event.id);
      const answer = offset === undefined ? 'unknown' : 'acknowledged';
      this.sends.push({ topic: this.topic, id: event.id, isPoison: event.poison ?? false, answer });
    }
  }

  #next(partition: number): Outgoing {
    const earlier = this.#earlier[partition] as Outgoing[];
    if (earlier.length > 0 && this.random.chance(DUPLICATES)) return this.random.pick(earlier.slice(-500));
    const outgoing = { event: this.#newEvent(partition), partition };
    if (!outgoing.event.poison) earlier.push(outgoing);
    return outgoing;
  }

  #newEvent(partition: number): SoakEvent {
    const key = `key-${this.random.between(0, KEYS / PARTITIONS - 1) * PARTITIONS + partition}`;
    const seq = (this.#seqs.get(key) ?? 0) + 1;
    this.#seqs.set(key, seq);
    const [fails, isPoison] = [this.random.chance(FAILURES), this.random.chance(POISON)];
    return {
      id: `${key}-${seq}`,
      key,
      seq,
      ...(fails && { failures: this.random.between(1, 3) }),
      ...(isPoison && HAS_PARKING && { poison: true }),
    };
  }
}

function messageOf({ event, partition }: Outgoing): Message {
  return { partition, key: event.key, value: JSON.stringify(event), headers: { 'event-id': event.id } };
}
