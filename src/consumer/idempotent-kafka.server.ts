import { Inject, Injectable, Logger } from '@nestjs/common';
import {
  Server,
  Transport,
  type CustomTransportStrategy,
  type KafkaContext,
  type MessageHandler,
} from '@nestjs/microservices';
import type { ConsumerConfig, KafkaConfig } from 'kafkajs';
import { ClusterReader } from '../kafka/cluster-reader.js';
import type { DecodingSettings } from '../kafka/codecs.js';
import { CheckedProducer, type ProducerSettings } from '../kafka/checked-producer.js';
import { handlerProducer } from '../kafka/handler-producer.js';
import type { NewKafka } from '../kafka/kafka-client.js';
import type { ConsumerProgress, HealthReport } from '../shared/consumer-progress.js';
import { deliveryInProgress } from '../shared/delivery.js';
import type { EmitEvent } from '../shared/events.js';
import { IdempotencyError } from '../shared/errors.js';
import type { HandledEvents } from '../shared/handled-events.js';
import type { HandlerProfiles } from '../shared/handler-profile.js';
import type { ParkedDelivery, Parking, Redelivery, RedeliveryReport } from '../shared/parking.js';
import type { SharedTransactions } from '../shared/shared-transaction.js';
import {
  EMIT_EVENT,
  HANDLER_PROFILES,
  NEW_KAFKA,
  PARKING,
  RESOLVED_OPTIONS,
  SHARED_TRANSACTIONS,
} from '../shared/tokens.js';
import { Consuming } from './consuming.js';
import { consumerHealth } from './consumer-health.js';
import { DeliveryAttempts } from './delivery-attempts.js';
import { DuplicateProbe } from './duplicate-probe.js';
import { GroupDelivery } from './group-delivery.js';
import type { HandledBefore } from './missing-offsets.js';
import { HandlerTable, statelessRegExp, type RegisteredHandler } from './handler-table.js';
import type { Barrier } from './offset-committer.js';
import { Outage } from './outage.js';
import { OutageNotice } from './outage-notice.js';
import { Redeliveries } from './redeliveries.js';
import { warnOfSiblingGroup } from './sibling-group.js';
import { RecordDelivery } from './record-delivery.js';
import { Replies } from './replies.js';
import { Slots } from './slots.js';
import { StalledReads } from './stalled-reads.js';
import { Subscription } from './subscription.js';
import { UnreplicatedNotice } from './unreplicated-notice.js';

/** What the transport needs of the module's options. */
export interface ServerOptions {
  readonly kafka: {
    readonly client: KafkaConfig;
    readonly consumer: ConsumerConfig & { readonly sessionTimeout: number; readonly rebalanceTimeout: number };
    readonly groupId: string;
    readonly postfixId: string;
    readonly fromBeginning: boolean;
    readonly offsetOutOfRange: 'earliest' | 'fail';
    readonly producer: ProducerSettings;
    readonly codecs: DecodingSettings['codecs'];
  };
  readonly deadLetters: { readonly topic: string } | undefined;
  readonly concurrency: { readonly keys: number };
  readonly buffer: { readonly records: number; readonly bytes: number };
  readonly limits: { readonly jsonDepth: number; readonly batchBytes: number };
  readonly commitIntervalMs: number;
  readonly shutdownDeadlineMs: number;
}

/** What only the started application knows. */
interface BeginFacts {
  /** Deliveries at once. */
  readonly transactions: number;
  readonly barrier: Barrier;
  readonly handledBefore: HandledBefore;
  readonly handled: HandledEvents;
}

interface Registration {
  readonly pattern: string | RegExp;
  readonly callback: MessageHandler;
  readonly isEventHandler: boolean;
  readonly extras: object;
}

/**
 * The Kafka transport for `connectMicroservice({ strategy: app.get(IdempotentKafkaServer) })`:
 * - a record's offset is committed only after every handler of its topic has settled it;
 * - a failing record stays in front of its partition; the other partitions go on;
 * - nothing begins on a partition that is not ours any more, and only offsets of partitions that are ours are committed.
 *
 * Consuming begins when the transport listens and the application is initialised, whichever comes last. `pause`, `resume` and `stop` may be called
 * inside a handler.
 */
@Injectable()
export class IdempotentKafkaServer extends Server implements CustomTransportStrategy, ConsumerProgress, Redelivery {
  override readonly transportId = Transport.KAFKA;
  /** The delivery engine logs failures itself; Nest shall not do it again. */
  override propagatesEventHandlerErrors = true;
  /** The group in use, postfix included. */
  readonly groupId: string;
  protected override readonly logger = new Logger(IdempotentKafkaServer.name);
  readonly #noStartHook = this.onProcessingStartHook;
  readonly #registrations: Registration[] = [];
  readonly #paused = new Set<string>();
  /** Of the database, as far as they were noticed. */
  readonly #restarts = { count: 0 };
  readonly #unreplicated = new UnreplicatedNotice();
  #listeningSince: Date | undefined;
  #begin: BeginFacts | undefined;
  #consuming: Consuming | undefined;
  #attempts: DeliveryAttempts | undefined;
  #outage: Outage | undefined;
  #redeliveries: Redeliveries | undefined;
  #replies: Replies | undefined;
  #stopped: Promise<void> | undefined;

  constructor(
    @Inject(RESOLVED_OPTIONS) private readonly options: ServerOptions,
    @Inject(HANDLER_PROFILES) private readonly profiles: HandlerProfiles,
    @Inject(PARKING) private readonly parking: Parking,
    @Inject(SHARED_TRANSACTIONS) private readonly shared: SharedTransactions,
    @Inject(NEW_KAFKA) private readonly newKafka: NewKafka,
    @Inject(EMIT_EVENT) private readonly emit: EmitEvent,
  ) {
    super();
    this.groupId = options.kafka.groupId;
  }

  /** Nest registers handlers here. All of a pattern are kept and run, each settled on its own. */
  override addHandler(
    pattern: unknown,
    callback: MessageHandler,
    isEventHandler = false,
    extras: Record<string, unknown> = {},
  ): void {
    callback.isEventHandler = isEventHandler;
    callback.extras = extras;
    const kept = pattern instanceof RegExp ? statelessRegExp(pattern) : this.normalizePattern(pattern as string);
    this.#registrations.push({ pattern: kept, callback, isEventHandler, extras });
  }

  /** How many handlers Nest has registered on this transport. */
  get handlerCount(): number {
    return this.#registrations.length;
  }

  listen(callback: (error?: unknown) => void): void {
    this.#listeningSince ??= new Date();
    try {
      this.#startWhenReady();
    } catch (error) {
      callback(error);
      return;
    }
    callback();
  }

  /** Called by the module once everything that handlers need is checked and ready. */
  begin(facts: BeginFacts): void {
    this.#begin = facts;
    this.#startWhenReady();
  }

  /** @internal Called by the module when the database is seen to have crashed or been started again: what it had not written to its disk is gone. */
  databaseRestarted(): void {
    this.#restarts.count += 1;
    this.#consuming?.state.membership?.databaseRestarted();
  }

  /** @internal Called by the module when a commit was acknowledged without the synchronous standby: before its record is settled. */
  commitUnreplicated(detail: string): void {
    this.#unreplicated.tell(detail);
    this.#consuming?.state.membership?.commitUnreplicated();
  }

  /** Nothing further of the topic begins; what is being handled ends. Holds over rebalances until {@link IdempotentKafkaServer.resume}. */
  pause(topic: string): void {
    this.#paused.add(topic);
    this.#consuming?.state.membership?.pauseChanged(topic);
  }

  resume(topic: string): void {
    this.#paused.delete(topic);
    this.#consuming?.state.membership?.pauseChanged(topic);
  }

  /**
   * Drains: lets running deliveries end, commits, leaves the group, within `shutdown.deadline`. Inside a handler it returns at once, for it cannot
   * wait for itself. Returns the promise already running when called again.
   */
  stop(): Promise<void> {
    this.#stopped ??= this.#drain();
    const delivery = deliveryInProgress();
    const isInHandler = delivery !== undefined && delivery.reported === undefined; // a timer made there lives on in its context
    return isInHandler ? Promise.resolve() : this.#stopped;
  }

  close(): Promise<void> {
    return this.stop();
  }

  health(): HealthReport {
    return consumerHealth({
      state: this.#consuming?.state,
      listeningSince: this.#listeningSince,
      overdueMs: this.#attempts?.overdueMs() ?? -Infinity,
      outage: this.#outage?.declared,
      isPaused: (topic) => this.#paused.has(topic),
      now: performance.now(),
    });
  }

  get consumers(): Redelivery['consumers'] {
    return this.#redeliveries?.consumers ?? new Map();
  }

  redeliver(parked: ParkedDelivery): Promise<RedeliveryReport> {
    if (this.#redeliveries === undefined)
      throw new IdempotencyError(
        'TRANSPORT_MISSING',
        'Parked events are delivered by the transport, which is not listening here: connect it and start the application first',
      );
    return this.#redeliveries.redeliver(parked);
  }

  on(): never {
    throw new Error('IdempotentKafkaServer has no client events. Subscribe to IdempotencyEvents instead');
  }

  /** kafkajs's consumer, undefined while there is none, and a producer. */
  unwrap<T>(): T {
    return [this.#consuming?.state.membership?.consumer, this.#replies?.producer] as T;
  }

  #startWhenReady(): void {
    if (
      this.#begin === undefined ||
      this.#listeningSince === undefined ||
      this.#consuming !== undefined ||
      this.#stopped !== undefined
    )
      return;
    const handlers = new HandlerTable(this.#registrations.map((registration) => this.#registered(registration)));
    handlers.checkExactlyOnce();
    const { kafka, buffer, commitIntervalMs, limits, shutdownDeadlineMs } = this.options;
    const { newKafka } = this;
    const reader = new ClusterReader(newKafka);
    const producer = new CheckedProducer(newKafka, kafka.producer);
    this.#replies = new Replies(producer, handlerProducer(newKafka(), kafka.producer));
    const attempts = new DeliveryAttempts({
      replies: this.#replies,
      emit: this.emit,
      nest: {
        consumer: () => this.#consuming?.state.membership?.consumer,
        producer: () => this.#replies?.producer,
        hasHooks: () => this.#hasHooks,
        withHooks: (context, work) => this.#withHooks(context, work),
      },
    });
    const outage = new Outage(new OutageNotice('DATABASE_UNAVAILABLE', this.emit), {
      ready: () => this.#consuming?.state.membership?.ready ?? [],
      wakeAll: () => this.#consuming?.state.membership?.wake(),
    });
    const deliveryParts = {
      handlers,
      attempts,
      slots: new Slots(this.#begin.transactions),
      outage,
      jsonDepth: limits.jsonDepth,
      emit: this.emit,
      restarts: this.#restarts,
    };
    this.#attempts = attempts;
    this.#outage = outage;
    this.#redeliveries = new Redeliveries({ ...deliveryParts, producer, isPaused: (topic) => this.#paused.has(topic) });
    const delivery = new RecordDelivery(deliveryParts);
    const { keys } = this.options.concurrency;
    const groups = new GroupDelivery({ ...deliveryParts, shared: this.shared, delivery, keys });
    const parts = {
      newKafka,
      config: kafka.consumer,
      groupId: this.groupId,
      fromBeginning: kafka.fromBeginning,
      offsetOutOfRange: kafka.offsetOutOfRange,
      deadLetterTopic: this.options.deadLetters?.topic,
      buffer,
      keys,
      batchBytes: limits.batchBytes,
      codecs: kafka.codecs,
      commitIntervalMs,
      reader,
      parking: this.parking,
      delivery,
      groups,
      probe: new DuplicateProbe({ ...deliveryParts, delivery, groups, handled: this.#begin.handled }),
      outage,
      brokers: new OutageNotice('BROKER_UNAVAILABLE', this.emit),
      reads: new OutageNotice('READ_STALLED', this.emit),
      stalledReads: new StalledReads(),
      barrier: this.#begin.barrier,
      handledBefore: this.#begin.handledBefore,
      emit: this.emit,
      isPaused: (topic: string) => this.#paused.has(topic),
      producer: kafka.producer,
      isExactlyOnce: (topic: string) => handlers.isExactlyOnce(topic),
      endings: new Map<string, Promise<void>>(),
    };
    this.#consuming = new Consuming(parts, new Subscription(handlers, reader), shutdownDeadlineMs);
    this.logger.log(
      `Consuming as group ${this.groupId}: ${handlers.all.map(({ pattern, profile }) => `${String(pattern)} → ${profile.consumer}`).join(', ')}`,
    );
    const consuming = this.#consuming;
    void warnOfSiblingGroup(kafka, reader, handlers.exactTopics).finally(() => consuming.start());
  }

  #registered({ pattern, callback, isEventHandler, extras }: Registration): RegisteredHandler {
    const profile = this.profiles.profileOf(extras);
    if (profile === undefined)
      throw new Error(`The handler of ${String(pattern)} stands in no controller of this application`);
    return { pattern, callback, isEventHandler, profile };
  }

  async #drain(): Promise<void> {
    try {
      await Promise.all([this.#redeliveries?.end(this.options.shutdownDeadlineMs), this.#consuming?.end()]);
      await this.#replies?.close();
    } finally {
      this.#outage?.end();
      this.#attempts?.close();
    }
  }

  get #hasHooks(): boolean {
    return this.onProcessingStartHook !== this.#noStartHook || this.onProcessingEndHook !== undefined;
  }

  /** Nest's processing hooks, start and end exactly once each around one delivery, however it ends. Free while nobody has set any. */
  #withHooks<T>(context: KafkaContext, work: () => Promise<T>): Promise<T> {
    if (!this.#hasHooks) return work();
    return new Promise((resolve, reject) => {
      const run = () =>
        work()
          .then(resolve, reject)
          .finally(() => this.onProcessingEndHook?.(this.transportId, context));
      this.onProcessingStartHook(this.transportId, context, run);
    });
  }
}
