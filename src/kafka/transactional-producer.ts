import { setTimeout as sleep } from 'node:timers/promises';
import { CompressionTypes, type Kafka, type Producer, type RetryOptions, type Transaction } from 'kafkajs';
import { within } from '../shared/within.js';
import { typeOf } from './broker-answer.js';
import { messagesByTopic, sendError, type OutgoingMessage, type ProducerSettings } from './checked-producer.js';
import { PartitionChoice } from './partition-choice.js';
import type { PartitionOffset } from './positions.js';
import { inParts } from './send-parts.js';

/** After a commit brokers write their marks, and refuse the next transaction for some milliseconds: kafkajs's own 300 would be waited for each time. */
const SOON: RetryOptions = { initialRetryTime: 5, multiplier: 1.5, maxRetryTime: 200, retries: 60 };
const OFFSETS_AGAIN_MS = 5;
/** The broker ends a transaction whose producer says nothing for so long; until then nobody can read what is behind it. */
const TRANSACTION_MS = 15_000;
/** What takes longer is given up, and fenced. */
const PATIENCE_MS = 10_000;
const SEND_BYTES = 900_000;
const CLOSE_MS = 500;

export interface KafkaCommit {
  readonly messages: readonly OutgoingMessage[];
  /** Where the group goes on in the partition the messages were made from. */
  readonly offset: PartitionOffset;
  /** All is in the transaction, and only its end is left. */
  readonly onSent: () => void;
}

/**
 * Kafka transactions under one transactional.id, one after another:
 * - {@link fence} before the first one, and after each that failed: it ends what an earlier producer of this id had open, here or elsewhere, and that one can commit nothing more.
 *   What it had decided is final then: the group's offset tells;
 * - a {@link commit} that rejects may have happened or not.
 */
export class TransactionalProducer {
  #live: LiveProducer | undefined;
  #turn = 0;

  constructor(
    private readonly newKafka: (retry: RetryOptions) => Kafka,
    private readonly settings: ProducerSettings & { readonly groupId: string; readonly transactionalId: string },
  ) {}

  /** Rejects as kafkajs does, after seconds without an answer, or when it is called again meanwhile: only the last may commit. */
  async fence(): Promise<void> {
    const turn = (this.#turn += 1);
    this.#throwAway();
    const choice = new PartitionChoice(this.settings.createPartitioner);
    const producer = this.newKafka(SOON).producer({
      createPartitioner: choice.partitioner,
      allowAutoTopicCreation: false,
      idempotent: true,
      maxInFlightRequests: 1,
      transactionalId: this.settings.transactionalId,
      transactionTimeout: TRANSACTION_MS,
      retry: SOON,
    });
    const live = new LiveProducer(producer, choice);
    try {
      await inTime(this.#begin(producer), 'the brokers did not answer');
      if (turn !== this.#turn) throw new Error('it was fenced anew meanwhile, or closed');
    } catch (error) {
      live.throwAway();
      throw error;
    }
    this.#live = live;
  }

  /** Rejects with MESSAGE_TOO_LARGE or BROKER_UNAVAILABLE, or a TypeError for what cannot be written. */
  async commit(commit: KafkaCommit): Promise<void> {
    const live = this.#live;
    try {
      if (live === undefined) throw new Error('the producer was not fenced, or is closed');
      await Promise.race([inTime(this.#commit(live, commit), 'the transaction did not end'), live.gone]);
    } catch (error) {
      if (this.#live === live) this.#throwAway(); // else another has taken its place
      throw sendError(error, commit.messages);
    }
  }

  close(): void {
    this.#turn += 1;
    this.#throwAway();
  }

  /** kafkajs asks for the epoch with the first transaction. It has nothing in it, so its end is told to nobody. */
  async #begin(producer: Producer): Promise<void> {
    await producer.connect();
    const transaction = await producer.transaction();
    await transaction.abort();
  }

  async #commit(live: LiveProducer, { messages, offset, onSent }: KafkaCommit): Promise<void> {
    const transaction = await live.producer.transaction();
    for (const part of inParts(messages, SEND_BYTES, bytesOf)) {
      const topicMessages = messagesByTopic(part);
      const answer = await transaction.sendBatch({
        acks: -1,
        compression: this.settings.compression === 'gzip' ? CompressionTypes.GZIP : CompressionTypes.None,
        topicMessages,
      });
      const missing = topicMessages.filter(
        ({ topic, messages: sent }) => live.choice.missing(topic, sent, answer).length > 0,
      );
      if (missing.length > 0)
        throw new Error(`the answer lacks partitions of ${missing.map(({ topic }) => topic).join(', ')}`);
    }
    await this.#sendOffset(transaction, offset);
    onSent();
    await transaction.commit();
  }

  /** kafkajs does not wait here for the marks of the transaction before. */
  async #sendOffset(transaction: Transaction, { topic, partition, offset }: PartitionOffset): Promise<void> {
    const until = performance.now() + PATIENCE_MS;
    for (;;) {
      try {
        return await transaction.sendOffsets({
          consumerGroupId: this.settings.groupId,
          topics: [{ topic, partitions: [{ partition, offset: offset.toString() }] }],
        });
      } catch (error) {
        if (typeOf(error) !== 'CONCURRENT_TRANSACTIONS' || performance.now() > until) throw error;
        await sleep(OFFSETS_AGAIN_MS);
      }
    }
  }

  /** Never aborts: after an error nobody knows how its transaction stands, and the next fence ends it. */
  #throwAway(): void {
    this.#live?.throwAway();
    this.#live = undefined;
  }
}

class LiveProducer {
  /** Rejects when it is thrown away: kafkajs may leave what it was doing without an end. */
  readonly gone: Promise<never>;
  #tellGone: (error: Error) => void = () => {};

  constructor(
    readonly producer: Producer,
    readonly choice: PartitionChoice,
  ) {
    this.gone = new Promise((_, reject) => (this.#tellGone = reject));
    this.gone.catch(() => {}); // whoever waits for a commit hears of it
  }

  throwAway(): void {
    this.#tellGone(new Error('its producer was fenced, or closed'));
    void within(this.producer.disconnect(), CLOSE_MS).catch(() => {}); // what it still holds is nobody's
  }
}

async function inTime(work: Promise<void>, what: string): Promise<void> {
  if (!(await within(work, PATIENCE_MS))) throw new Error(`${what} within ${PATIENCE_MS / 1000} s`);
}

function bytesOf({ key, value, headers }: OutgoingMessage): number {
  const inHeaders = Object.entries(headers ?? {}).reduce(
    (sum, [name, bytes]) => sum + Buffer.byteLength(name) + (bytes as Buffer).length,
    0,
  );
  return (key?.length ?? 0) + (value?.length ?? 0) + inHeaders;
}
