import { Controller, Inject, type Type } from '@nestjs/common';
import { Ctx, Payload, type KafkaContext } from '@nestjs/microservices';
import { DataSource } from 'typeorm';
import {
  BatchContext,
  EventPublisher,
  Idempotent,
  IdempotentBatch,
  KafkaExactlyOnce,
  TransactionScope,
  type IdempotentBatchOptions,
  type IdempotentOptions,
  type KafkaExactlyOnceOptions,
} from 'nestjs-kafka-idempotency';
import { OnTopic } from './service.js';

export interface TestEvent {
  readonly id: string;
}

export interface Tools {
  readonly dataSource: DataSource;
  readonly scope: TransactionScope;
  readonly publisher: EventPublisher;
  readonly context: KafkaContext;
}

/** A controller with one idempotent handler on the topic. Its default consumer name is `test`. */
export function eventHandler<E = TestEvent>(
  topic: string,
  work: (event: E, tools: Tools) => unknown,
  options?: IdempotentOptions,
): Type {
  @Controller()
  class Handlers {
    constructor(
      @Inject(DataSource) private readonly dataSource: DataSource,
      @Inject(TransactionScope) private readonly scope: TransactionScope,
      @Inject(EventPublisher) private readonly publisher: EventPublisher,
    ) {}

    @OnTopic(topic)
    @Idempotent({ consumer: 'test', ...options })
    handle(@Payload() event: E, @Ctx() context: KafkaContext): unknown {
      const { dataSource, scope, publisher } = this;
      return work(event, { dataSource, scope, publisher, context });
    }
  }
  return Handlers;
}

/** The same that writes its effect, and publishes the id of the event under one key. */
export function publishingHandler(topic: string, out: string): Type {
  return eventHandler(topic, async ({ id }, tools) => {
    await writeEffect(tools, id);
    await tools.publisher.publish(out, id, { key: 'k' });
  });
}

export interface BatchTools extends Tools {
  readonly context: BatchContext;
}

/** The same with a handler that takes batches. */
export function batchHandler<E = TestEvent>(
  topic: string,
  work: (events: E[], tools: BatchTools) => unknown,
  options?: IdempotentBatchOptions,
): Type {
  @Controller()
  class Handlers {
    constructor(
      @Inject(DataSource) private readonly dataSource: DataSource,
      @Inject(TransactionScope) private readonly scope: TransactionScope,
      @Inject(EventPublisher) private readonly publisher: EventPublisher,
    ) {}

    @IdempotentBatch({ consumer: 'test', ...options })
    @OnTopic(topic)
    handle(@Payload() events: E[], @Ctx() context: BatchContext): unknown {
      const { dataSource, scope, publisher } = this;
      return work(events, { dataSource, scope, publisher, context });
    }
  }
  return Handlers;
}

/** A controller with one exactly-once handler on the topic. Its default consumer name is `test`. */
export function exactlyOnceHandler<E = TestEvent>(
  topic: string | RegExp,
  work: (event: E, publisher: EventPublisher) => unknown,
  options?: KafkaExactlyOnceOptions,
): Type {
  @Controller()
  class Handlers {
    constructor(@Inject(EventPublisher) private readonly publisher: EventPublisher) {}

    @OnTopic(topic)
    @KafkaExactlyOnce({ consumer: 'test', ...options })
    handle(@Payload() event: E): unknown {
      return work(event, this.publisher);
    }
  }
  return Handlers;
}

/** One statement for all of them, in their order. */
export async function writeEffects(
  { dataSource }: { dataSource: DataSource },
  events: readonly TestEvent[],
  handler = '',
): Promise<void> {
  await dataSource.query(
    'INSERT INTO effects (event_id, handler) SELECT id, $2 FROM unnest($1::text[]) WITH ORDINALITY AS event (id, place) ORDER BY place',
    [events.map(({ id }) => id), handler],
  );
}

export async function writeEffect({ dataSource }: { dataSource: DataSource }, id: string, handler = ''): Promise<void> {
  await dataSource.query('INSERT INTO effects (event_id, handler) VALUES ($1, $2)', [id, handler]);
}

/** A point where code waits until somebody opens it. */
export class Gate {
  readonly passed: Promise<void>;
  #open: () => void = () => undefined;

  constructor() {
    this.passed = new Promise((resolve) => (this.#open = resolve));
  }

  open(): void {
    this.#open();
  }
}

/** A point where code waits until so many have come. */
export class Meeting {
  readonly #gate = new Gate();
  #came = 0;

  constructor(private readonly expected: number) {}

  get came(): number {
    return this.#came;
  }

  async arrive(): Promise<void> {
    this.#came += 1;
    if (this.#came >= this.expected) this.#gate.open();
    await this.#gate.passed;
  }
}
