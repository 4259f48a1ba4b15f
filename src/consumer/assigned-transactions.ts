import type { ClusterReader } from '../kafka/cluster-reader.js';
import type { ProducerSettings } from '../kafka/checked-producer.js';
import type { NewKafka } from '../kafka/kafka-client.js';
import { partitionKey, type TopicPartition } from '../kafka/positions.js';
import { TransactionalProducer } from '../kafka/transactional-producer.js';
import type { EmitEvent } from '../shared/events.js';
import { LaneTransactions } from './lane-transactions.js';

/** Each connects to the coordinator of its own id. */
const FENCES_AT_ONCE = 10;

export interface AssignedTransactionsParts {
  readonly newKafka: NewKafka;
  readonly producer: ProducerSettings;
  readonly groupId: string;
  readonly reader: ClusterReader;
  readonly emit: EmitEvent;
  /** What is made of the topic's records is sent in Kafka transactions. */
  readonly isExactlyOnce: (topic: string) => boolean;
}

/** Kafka's transactions for each assigned partition of a topic that wants them: one transactional.id, and so one producer, for each. */
export class AssignedTransactions {
  readonly #byPlace = new Map<string, LaneTransactions>();

  constructor(private readonly parts: AssignedTransactionsParts) {}

  /** Undefined: what is made of this topic's records is in no Kafka transaction. */
  needed(place: TopicPartition): LaneTransactions | undefined {
    if (!this.parts.isExactlyOnce(place.topic)) return undefined;
    const transactions = this.#byPlace.get(partitionKey(place));
    if (transactions === undefined) throw new Error(`${place.topic}[${place.partition}] was not fenced`);
    return transactions;
  }

  /** After every join, and before the group's offsets are read; no more of them once it is not wanted. Rejects if one cannot be fenced. */
  async fence(places: readonly TopicPartition[], isWanted: () => boolean): Promise<void> {
    const waiting = places.filter(({ topic }) => this.parts.isExactlyOnce(topic));
    while (waiting.length > 0 && isWanted()) {
      const ended = await Promise.allSettled(waiting.splice(0, FENCES_AT_ONCE).map((place) => this.#fence(place)));
      const failed = ended.find(({ status }) => status === 'rejected');
      if (failed !== undefined) throw (failed as PromiseRejectedResult).reason;
    }
  }

  /** Those of all other partitions are lost: what they have open is ended by whoever fences next. */
  keepOnly(places: readonly TopicPartition[]): void {
    const kept = new Set(places.map(partitionKey));
    for (const [place, transactions] of this.#byPlace) {
      if (kept.has(place)) continue;
      transactions.close();
      this.#byPlace.delete(place);
    }
  }

  async #fence(place: TopicPartition): Promise<void> {
    let transactions = this.#byPlace.get(partitionKey(place));
    if (transactions === undefined) {
      transactions = this.#open(place);
      this.#byPlace.set(partitionKey(place), transactions);
    }
    await transactions.fence();
  }

  #open(place: TopicPartition): LaneTransactions {
    const { newKafka, groupId, reader, emit } = this.parts;
    const transactionalId = `${groupId}.${place.topic}.${place.partition}`;
    const producer = new TransactionalProducer(newKafka, {
      ...this.parts.producer,
      groupId,
      transactionalId,
      knownTopic: place.topic,
    });
    return new LaneTransactions({ place, groupId, producer, reader, emit });
  }
}
