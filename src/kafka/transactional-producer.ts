import { setTimeout as sleep } from 'node:timers/promises';
import { CompressionTypes, type Kafka, type Producer, type Transaction } from 'kafkajs';
import { IdempotencyError } from '../shared/errors.js';
import { within } from '../shared/within.js';
import { typeOf } from './broker-answer.js';
import { messagesByTopic, sendError, type OutgoingMessage, type ProducerSettings } from './checked-producer.js';
import { PartitionChoice } from './partition-choice.js';
import type { PartitionOffset } from './positions.js';
import { bytesOfMessage, inParts, SEND_BYTES } from './send-parts.js';

/** The broker ends a transaction whose producer says nothing for so long; until then nobody can read what is behind it. */
const TRANSACTION_MS = 15_000;
/** What takes longer is given up, and fenced. */
const PATIENCE_MS = 10_000;
/** Behind a transaction the broker writes its marks, for some milliseconds. */
const MARKS_MS = 5;
const CLOSE_MS = 500;

export interface KafkaCommit {
  readonly messages: readonly OutgoingMessage[];
  /** Where the group goes on in the partition the messages were made from. */
  readonly offset: PartitionOffset;
  /** All is in the transaction, and only its end is left. */
  readonly onSent: () => void;
}

export interface TransactionalSettings extends ProducerSettings {
  readonly groupId: string;
  readonly transactionalId: string;
  /** Any topic that has its leaders: kafkajs would ask for those of all topics of the cluster. */
  readonly knownTopic: string;
}

/**
 * Kafka transactions under one transactional.id, one after another:
 * - {@link fence} before the first one, and after each that failed: it ends what an earlier producer of this id had open, here or elsewhere, and that one can commit nothing more.
 *   What it had decided is final then: the group's offset tells;
 * - a {@link commit} that rejects may have happened or not;
 * - kafkajs retries nothing inside of a transaction: it would send again to brokers that have not answered yet, and they would store both.
 */
export class TransactionalProducer {
  #live: LiveProducer | undefined;
  #turn = 0;

  constructor(
    private readonly newKafka: () => Kafka,
    private readonly settings: TransactionalSettings,
  ) {}

  /** Rejects with BROKER_UNAVAILABLE: without an answer for seconds, or when it is called again meanwhile, for only the last may commit. */
  async fence(): Promise<void> {
    const turn = (this.#turn += 1);
    this.#throwAway();
    const live = this.#new();
    try {
      await inTime(this.#begin(live.producer, turn), 'the brokers did not answer');
      this.#checkTurn(turn);
    } catch (error) {
      live.throwAway();
      throw notFenced(this.settings.transactionalId, error);
    }
    this.#live = live;
  }

  /** Rejects with MESSAGE_TOO_LARGE, OPTIONS_INVALID or a TypeError for what cannot be sent, else with BROKER_UNAVAILABLE. */
  async commit(commit: KafkaCommit): Promise<void> {
    const live = this.#live;
    try {
      if (live === undefined) throw new Error('its producer was not fenced, or is closed');
      await Promise.race([inTime(this.#commit(live, commit), 'the transaction did not end'), live.gone]);
    } catch (error) {
      if (this.#live === live) this.#throwAway(); // else another has taken its place
      throw IdempotencyError.is(error) ? error : sendError(error, commit.messages);
    }
  }

  close(): void {
    this.#turn += 1;
    this.#throwAway();
  }

  #new(): LiveProducer {
    const choice = new PartitionChoice(this.settings.createPartitioner);
    const producer = this.newKafka().producer({
      createPartitioner: choice.partitioner,
      allowAutoTopicCreation: false,
      idempotent: false, // what is sent in a transaction is; this is about what is sent outside of it, which nothing is
      maxInFlightRequests: 1,
      transactionalId: this.settings.transactionalId,
      transactionTimeout: TRANSACTION_MS,
      retry: { retries: 0 },
    });
    return new LiveProducer(producer, choice);
  }

  /** kafkajs takes the epoch with the first transaction. It has nothing in it, so its end is told to nobody. */
  async #begin(producer: Producer, turn: number): Promise<void> {
    await producer.connect();
    await producer.sendBatch({ topicMessages: [{ topic: this.settings.knownTopic, messages: [] }] });
    this.#checkTurn(turn); // or it would fence its successor
    const transaction = await producer.transaction();
    await transaction.abort();
  }

  #checkTurn(turn: number): void {
    if (turn !== this.#turn) throw new Error('it was fenced anew meanwhile, or closed');
  }

  /** The offset first, which can wait for the marks of the transaction before. */
  async #commit(live: LiveProducer, { messages, offset, onSent }: KafkaCommit): Promise<void> {
    const transaction = await live.producer.transaction();
    await this.#sendOffset(transaction, offset);
    for (const part of inParts(messages, SEND_BYTES, bytesOfMessage)) {
      const topicMessages = messagesByTopic(part);
      const answer = await transaction.sendBatch({
        acks: -1,
        compression: this.settings.compression === 'gzip' ? CompressionTypes.GZIP : CompressionTypes.None,
        topicMessages,
      });
      const missing = topicMessages.filter(
        ({ topic, messages: sent }) => live.choice.missing(topic, sent, answer).length > 0,
      );
      if (missing.length > 0) throw noSuchPartition(missing.map(({ topic }) => topic));
    }
    onSent();
    await transaction.commit();
  }

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
        await sleep(MARKS_MS);
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

/** It was given up, because it took so long. */
export class TooSlow extends Error {}

async function inTime(work: Promise<void>, what: string): Promise<void> {
  if (!(await within(work, PATIENCE_MS))) throw new TooSlow(`${what} within ${PATIENCE_MS / 1000} s`);
}

function notFenced(transactionalId: string, cause: unknown): IdempotencyError {
  return new IdempotencyError(
    'BROKER_UNAVAILABLE',
    `The transactional.id ${transactionalId} could not be fenced, so nothing may be committed under it: ${(cause as Error).message}. If the brokers are there, look whether their ACLs allow this client the operations Write and Describe on it`,
    { cause, retryable: true },
  );
}

/** Without a retry each broker that was asked is in the answer. */
function noSuchPartition(topics: readonly string[]): IdempotencyError {
  const message = `A message for ${topics.join(', ')} is not in Kafka's answer: it names a partition that its topic does not have`;
  return new IdempotencyError('OPTIONS_INVALID', message);
}
