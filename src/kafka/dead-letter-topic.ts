import type { IHeaders } from 'kafkajs';
import { IdempotencyError } from '../shared/errors.js';
import type { CheckedProducer } from './checked-producer.js';
import type { ClusterReader } from './cluster-reader.js';

/** What is sent: the bytes of a record. A header may come more than once, and without a value. */
export interface Letter {
  readonly key: Buffer | null;
  readonly value: Buffer | null;
  readonly headers: readonly (readonly [name: string, value: Buffer | null])[];
}

/**
 * The topic of dead letters. Key, value and headers arrive byte for byte, in the partition of the key, but for two things that kafkajs cannot write:
 * a header without a value arrives empty, and headers of one name stand together, those with a whole number for a name first.
 */
export class DeadLetterTopic {
  constructor(
    private readonly topic: string,
    private readonly producer: CheckedProducer,
    private readonly reader: Pick<ClusterReader, 'existing'>,
  ) {}

  /** Rejects with TOPIC_MISSING if the topic is not there: at start-up, before the first event is dead. */
  async check(): Promise<void> {
    if ((await this.reader.existing([this.topic])).length > 0) return;
    throw new IdempotencyError(
      'TOPIC_MISSING',
      `The topic of deadLetters, ${this.topic}, does not exist, so no event could be parked as dead. Create it, with max.message.bytes some 10 kB above that of the topics you consume, or leave deadLetters out`,
      { facts: { topic: this.topic } },
    );
  }

  /** 'sent' once all replicas have it. Rejects if that is not known. */
  async publish({ key, value, headers }: Letter): Promise<'sent' | 'too-large'> {
    try {
      await this.producer.send([{ topic: this.topic, key, value, headers: kafkajsHeaders(headers) }]);
      return 'sent';
    } catch (error) {
      if (IdempotencyError.is(error, 'MESSAGE_TOO_LARGE')) return 'too-large';
      throw error;
    }
  }

  close(): Promise<void> {
    return this.producer.close();
  }
}

const EMPTY = Buffer.alloc(0);

/** Own properties, whatever their names are: a header called `__proto__` stays a header. */
function kafkajsHeaders(headers: Letter['headers']): IHeaders {
  const values = new Map<string, Buffer[]>();
  for (const [name, value] of headers) values.set(name, [...(values.get(name) ?? []), value ?? EMPTY]);
  return Object.fromEntries(values);
}
