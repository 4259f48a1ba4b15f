import { KafkaContext } from '@nestjs/microservices';
import type { Consumer, Producer } from 'kafkajs';
import { textOrBytes } from './decode.js';
import type { ConsumedRecord } from './consumed-record.js';

/** What Nest hands to handlers beside the payload. */
export interface NestContext {
  readonly consumer: () => Consumer | undefined;
  readonly producer: () => Producer | undefined;
  /** Runs Nest's processing hooks around one delivery, each exactly once. */
  withHooks<T>(context: KafkaContext, work: () => Promise<T>): Promise<T>;
}

type Message = ConstructorParameters<typeof KafkaContext>[0][0];

/** `@Ctx()` of one delivery: the message as Nest shapes it, made of fresh copies. Keys and headers are text if they are UTF-8, else bytes; never parsed. */
export function nestContext(record: ConsumedRecord, payload: unknown, nest: NestContext): KafkaContext {
  const { key, headers, ...rest } = record.message;
  const message = {
    ...rest,
    topic: record.topic,
    partition: record.partition,
    key: key === null ? null : textOrBytes(key),
    value: payload,
    headers: Object.fromEntries(
      Object.entries(headers ?? {}).map(([name, value]) => [
        name,
        Array.isArray(value)
          ? value.map((one) => textOrBytes(Buffer.from(one)))
          : value === undefined
            ? undefined
            : textOrBytes(Buffer.from(value)),
      ]),
    ),
  };
  const heartbeat = async () => {}; // the fetch loop heartbeats however long a handler runs
  return new KafkaContext([
    message as unknown as Message,
    record.partition,
    record.topic,
    nest.consumer() as Consumer,
    heartbeat,
    nest.producer() as Producer,
  ]);
}
