import { ReplaySubject, type Observable } from 'rxjs';
import type { EntityManager } from 'typeorm';
import type { CheckedProducer } from '../kafka/checked-producer.js';
import { keyShard, SHARDS } from '../kafka/key-shard.js';
import { IdempotencyError } from '../shared/errors.js';
import type { TransactionScope } from '../transaction/transaction-scope.js';
import { deliveryInProgress, type DeliveryInProgress } from '../shared/delivery.js';
import type { KafkaSends } from '../shared/kafka-sends.js';
import { encodeMessage, type EncodedMessage, type PublishOptions } from './encoded-message.js';
import { kafkaMessage } from './outbox-row.js';
import type { OutboxTables } from './outbox-tables.js';
import { uuidOf } from './uuid.js';

const INTO = `INSERT INTO outbox_messages (shard, event_id, topic, partition, message_key, message_value, header_names, header_values)`;
// A transaction shows itself before it draws an id: a relay that reads in between knows that it may have one.
const STORE = `${INTO} SELECT $1::smallint, $2::text, $3::text, $4::integer, $5::bytea, $6::bytea, $7::text[], $8::bytea[] FROM pg_current_xact_id()`;
const STORE_ONCE = `WITH first AS (INSERT INTO outbox_dedupe (topic, dedupe_key, event_id) VALUES ($3, $9, $2) ON CONFLICT DO NOTHING RETURNING 1)
${INTO} SELECT $1::smallint, $2::text, $3::text, $4::integer, $5::bytea, $6::bytea, $7::text[], $8::bytea[] FROM first RETURNING 1`;
const FIRST_ID = `SELECT event_id AS id FROM outbox_dedupe WHERE topic = $1 AND dedupe_key = $2`;
/** Between the two statements the row of the first publish may have been pruned. */
const TRIES = 3;

export interface Published {
  /** The event id; of a duplicate, that of the first. */
  readonly id: string;
  /** The dedupeKey was published before: nothing was written. */
  readonly duplicate: boolean;
}

export interface EventPublisherParts {
  readonly scope: TransactionScope;
  readonly tables: OutboxTables;
  /** For what is sent directly. */
  readonly producer: CheckedProducer;
  readonly maxBytes: number;
  /** Called when a row has been committed. */
  readonly stored: () => void;
}

/**
 * Sends events out:
 * - in an idempotent handler or a `TransactionScope`, with its transaction: committed together or not at all, then sent at least once under a stable id;
 * - in a `@KafkaExactlyOnce()` handler, in the Kafka transaction that holds the offset of its record;
 * - with `direct`, at once and by itself.
 */
export class EventPublisher {
  #next = 0;

  constructor(private readonly parts: EventPublisherParts) {}

  /**
   * Takes a Buffer, a string, `null` (a tombstone) or what has a JSON. Throws NO_TRANSACTION outside a transaction, VALUE_NOT_SERIALIZABLE, MESSAGE_TOO_LARGE or
   * OPTIONS_INVALID for what cannot be sent, SCHEMA_MISSING; with `direct` what the send throws: SEND_INCOMPLETE, BROKER_UNAVAILABLE.
   */
  async publish(topic: string, value: unknown, options: PublishOptions = {}): Promise<Published> {
    const manager = options.direct === true ? undefined : this.parts.scope.active;
    const delivery = options.direct === true || manager !== undefined ? undefined : exactlyOnceDelivery();
    if (delivery !== undefined) return this.#addTo(delivery, topic, value, options);
    const message = encodeMessage(topic, value, options, this.parts);
    if (options.direct === true) return this.#send(message);
    if (manager === undefined) throw noTransaction(topic);
    const published = await this.#store(manager, message);
    if (!published.duplicate) this.parts.scope.afterCommit(this.parts.stored);
    return published;
  }

  /** As `ClientProxy.emit`: `data` is the value, or `{ value, key?, headers? }`. Hot: it is published whether or not anybody subscribes. In a handler, await it (`lastValueFrom`). */
  emit(topic: string, data: unknown): Observable<void> {
    const result = new ReplaySubject<void>(1);
    const { value, ...options } = isMessage(data) ? data : { value: data };
    this.publish(topic, value, options).then(
      () => {
        result.next();
        result.complete();
      },
      (error: unknown) => {
        const isHeard = result.observed;
        result.error(error);
        if (!isHeard) void Promise.reject(error as Error); // nobody would ever hear of it: Node's own rule for rejections holds
      },
    );
    return result.asObservable();
  }

  /** Under an id that is the same whenever the record is handled again. */
  #addTo(delivery: ExactlyOnceDelivery, topic: string, value: unknown, options: PublishOptions): Published {
    const { sends, consumer, topic: from, partition, offset, timestamp } = delivery;
    const origin = [consumer, from, partition, offset, timestamp.getTime(), topic, sends.messages.length];
    const id = options.id ?? uuidOf(JSON.stringify(origin));
    const message = encodeMessage(topic, value, { ...options, id }, this.parts);
    if (message.dedupeKey !== undefined) throw withoutRow(topic, '@KafkaExactlyOnce()');
    sends.add(kafkaMessage(message));
    return { id, duplicate: false };
  }

  async #send(message: EncodedMessage): Promise<Published> {
    if (message.dedupeKey !== undefined) throw withoutRow(message.topic, 'direct');
    await this.parts.producer.send([kafkaMessage(message)]);
    return { id: message.eventId, duplicate: false };
  }

  async #store(manager: EntityManager, message: EncodedMessage): Promise<Published> {
    const { tables } = this.parts;
    const { topic, eventId, dedupeKey } = message;
    const row = this.#rowOf(message);
    if (dedupeKey === undefined) {
      await manager.query(tables.text(STORE), row);
      return { id: eventId, duplicate: false };
    }
    for (let tries = 0; tries < TRIES; tries += 1) {
      const stored = await manager.query<unknown[]>(tables.text(STORE_ONCE), [...row, dedupeKey]);
      if (stored.length > 0) return { id: eventId, duplicate: false };
      const [first] = await manager.query<{ id: string }[]>(tables.text(FIRST_ID), [topic, dedupeKey]);
      if (first !== undefined) return { id: first.id, duplicate: true };
    }
    throw new IdempotencyError('SERIALIZATION_FAILED', `The dedupeKey of an event for ${topic} came and went`, {
      retryable: true,
    });
  }

  #rowOf({ topic, partition, eventId, key, value, headers }: EncodedMessage): unknown[] {
    const shard = key === null ? (this.#next = (this.#next + 1) % SHARDS) : keyShard(key);
    const [names, values] = [headers.map(([name]) => name), headers.map(([, bytes]) => bytes)];
    return [shard, eventId, topic, partition, key, value, names, values];
  }
}

type EmitData = Pick<PublishOptions, 'key' | 'headers'> & { value: unknown };

/** As Nest's Kafka client tells a message from a value. */
function isMessage(data: unknown): data is EmitData {
  return typeof data === 'object' && data !== null && !Buffer.isBuffer(data) && 'value' in data;
}

function noTransaction(topic: string): IdempotencyError {
  return new IdempotencyError(
    'NO_TRANSACTION',
    `publish('${topic}') was called outside a transaction, or when its transaction had ended, so there is nothing the event could be committed with. Call it in an @Idempotent() handler, in ` +
      'TransactionScope.run(), in a @KafkaExactlyOnce() handler, awaited there, or in TransactionScope.join() with the manager of a transaction of your own; or send it by itself with { direct: true }',
    { facts: { topic } },
  );
}

function withoutRow(topic: string, by: string): IdempotencyError {
  return new IdempotencyError(
    'OPTIONS_INVALID',
    `An event for ${topic} has a dedupeKey, which is kept with the row of the outbox, and ${by} writes none: leave one of the two out`,
    { facts: { topic } },
  );
}

type ExactlyOnceDelivery = DeliveryInProgress & { readonly sends: KafkaSends };

/** That of the `@KafkaExactlyOnce()` handler that is running here. */
function exactlyOnceDelivery(): ExactlyOnceDelivery | undefined {
  const delivery = deliveryInProgress();
  return delivery?.sends === undefined || delivery.sends.isClosed ? undefined : (delivery as ExactlyOnceDelivery);
}
