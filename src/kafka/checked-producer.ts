import { setTimeout as sleep } from 'node:timers/promises';
import {
  CompressionTypes,
  type ICustomPartitioner,
  type Kafka,
  type Message,
  type Producer,
  type TopicMessages,
} from 'kafkajs';
import { IdempotencyError } from '../shared/errors.js';
import { within } from '../shared/within.js';
import { LEADERLESS, typeOf } from './broker-answer.js';
import { PartitionChoice } from './partition-choice.js';

const TRIES = 5;
const TRY_AGAIN_MS = 200;
const KAFKAJS_RETRIES = 5;
const CLOSE_MS = 500;
const TOO_LARGE: readonly unknown[] = ['MESSAGE_TOO_LARGE', 'RECORD_LIST_TOO_LARGE'];

export interface ProducerSettings {
  readonly compression: 'none' | 'gzip';
  readonly createPartitioner: ICustomPartitioner | undefined;
}

/** Some of the messages are not stored; all others are. */
export class SendIncomplete extends IdempotencyError {
  constructor(
    message: string,
    readonly unsent: readonly Message[],
  ) {
    super('SEND_INCOMPLETE', message, { retryable: true });
  }
}

/** A message and where it goes; with `partition`, exactly there. */
export type OutgoingMessage = Message & { readonly topic: string };

/**
 * A producer whose acknowledgement means stored, by all replicas:
 * - a resolved `send` of kafkajs may lack records that were never stored, after a leader has moved. Every partition sent to must stand in the
 *   answer; what is missing goes again, to the same partition;
 * - one send at a time, so that messages of a partition are stored in the order of the calls;
 * - after any error the kafkajs producer is thrown away. It takes its sequence numbers back, also those of partitions that were stored, and the
 *   broker would drop what comes next under the same numbers as a repetition;
 * - a message may still be stored twice, when an acknowledgement is lost.
 */
export class CheckedProducer {
  #live: LiveProducer | undefined;
  #last: Promise<unknown> = Promise.resolve();
  #closed: Promise<void> | undefined;

  constructor(
    private readonly newKafka: () => Kafka,
    private readonly settings: ProducerSettings,
  ) {}

  /**
   * Resolves once all messages are stored. Rejects with MESSAGE_TOO_LARGE or BROKER_UNAVAILABLE, and any of them may be stored; or with SEND_INCOMPLETE, which
   * names those that are not. Connects by itself.
   */
  send(messages: readonly OutgoingMessage[]): Promise<void> {
    const sent = this.#last.then(() => this.#send(messages));
    this.#last = sent.catch(() => {}); // told to the caller; the next one tries anew
    return sent;
  }

  /** Waits for a send under way, for half a second. */
  close(): Promise<void> {
    return (this.#closed ??= this.#close());
  }

  async #send(messages: readonly OutgoingMessage[]): Promise<void> {
    if (this.#closed !== undefined) throw new IdempotencyError('BROKER_UNAVAILABLE', 'The producer is closed');
    let unsent = messagesByTopic(messages);
    try {
      for (let tries = 0; tries < TRIES && unsent.length > 0; tries += 1) {
        if (tries > 0) await sleep(TRY_AGAIN_MS * tries);
        unsent = await this.#try(unsent);
      }
    } catch (error) {
      this.#throwAway();
      throw sendError(error, messages);
    }
    if (unsent.length > 0) throw incomplete(unsent);
  }

  /** Sends, and gives back what was not stored. */
  async #try(unsent: readonly TopicMessages[]): Promise<TopicMessages[]> {
    const live = this.#live ?? (await this.#connect());
    const answer = await live.producer.sendBatch({
      acks: -1,
      compression: this.settings.compression === 'gzip' ? CompressionTypes.GZIP : CompressionTypes.None,
      topicMessages: [...unsent],
    });
    return unsent
      .map(({ topic, messages }) => ({ topic, messages: live.choice.missing(topic, messages, answer) }))
      .filter(({ messages }) => messages.length > 0);
  }

  /**
   * Idempotent, so that kafkajs's own retries store nothing twice. For that it asks for the leaders of all topics there are, and fails while anybody's has
   * none; then it goes without.
   */
  async #connect(): Promise<LiveProducer> {
    try {
      return await this.#begin({ idempotent: true });
    } catch (error) {
      if (typeOf(error) !== LEADERLESS) throw error;
      this.#throwAway();
      return this.#begin({ idempotent: false });
    }
  }

  async #begin(kind: { readonly idempotent: boolean }): Promise<LiveProducer> {
    this.#live = newProducer(this.newKafka(), this.settings, kind);
    await this.#live.producer.connect();
    return this.#live;
  }

  async #close(): Promise<void> {
    await within(this.#last, CLOSE_MS);
    await within(this.#live?.producer.disconnect() ?? Promise.resolve(), CLOSE_MS);
  }

  #throwAway(): void {
    void this.#live?.producer.disconnect().catch(() => {}); // it has failed already; what it still holds is nobody's
    this.#live = undefined;
  }
}

interface LiveProducer {
  readonly producer: Producer;
  readonly choice: PartitionChoice;
}

function newProducer(
  kafka: Kafka,
  { createPartitioner }: ProducerSettings,
  { idempotent }: { readonly idempotent: boolean },
): LiveProducer {
  const choice = new PartitionChoice(createPartitioner);
  const producer = kafka.producer({
    createPartitioner: choice.partitioner,
    allowAutoTopicCreation: false,
    idempotent,
    maxInFlightRequests: 1,
    // By itself kafkajs would try for ever, and nobody would hear of an outage.
    retry: { retries: KAFKAJS_RETRIES },
  });
  return { producer, choice };
}

/** The shape kafkajs sends messages in. */
export function messagesByTopic(messages: readonly OutgoingMessage[]): TopicMessages[] {
  const topics = new Map<string, Message[]>();
  for (const message of messages) {
    const others = topics.get(message.topic);
    if (others === undefined) topics.set(message.topic, [message]);
    else others.push(message);
  }
  return [...topics].map(([topic, grouped]) => ({ topic, messages: grouped }));
}

/** What a failed send of ours throws: MESSAGE_TOO_LARGE, BROKER_UNAVAILABLE, or the TypeError of what cannot be written. */
export function sendError(error: unknown, messages: readonly OutgoingMessage[]): unknown {
  const causes = [...causesOf(error)];
  const topics = [...new Set(messages.map(({ topic }) => topic))].join(', ');
  const what = `${messages.length} message(s) for ${topics}`;
  // A RangeError comes from writing lengths that the protocol's numbers cannot hold.
  if (causes.some((cause) => TOO_LARGE.includes((cause as { type?: unknown }).type) || cause instanceof RangeError)) {
    const remedy = `Raise max.message.bytes of the topic and replica.fetch.max.bytes of the brokers, or send less`;
    return new IdempotencyError('MESSAGE_TOO_LARGE', `Kafka refuses ${what} for their size. ${remedy}`, {
      cause: error,
    });
  }
  // What cannot be written at all, such as a header that is no text: no outage, and no other try would help.
  const unwritable = causes.find((cause) => cause instanceof TypeError);
  if (unwritable !== undefined) return unwritable;
  return new IdempotencyError('BROKER_UNAVAILABLE', `Kafka did not take ${what}: ${(error as Error).message}`, {
    cause: error,
    retryable: true,
  });
}

function* causesOf(error: unknown): Generator<Error> {
  for (let cause = error; cause instanceof Error; cause = cause.cause) yield cause;
}

function incomplete(unsent: readonly TopicMessages[]): IdempotencyError {
  const what = unsent.map(({ topic, messages }) => `${messages.length} for ${topic}`).join(', ');
  const message = `Kafka answered ${TRIES} times without the partitions of some messages (${what}), so they are not stored. A partition without a leader, or one that does not exist, is not answered for`;
  return new SendIncomplete(
    message,
    unsent.flatMap(({ messages }) => messages),
  );
}
