import type { KafkaContext } from '@nestjs/microservices';
import type { Consumer, IHeaders, KafkaMessage, Producer } from 'kafkajs';
import type { Delivery } from '../shared/delivery.js';
import { BatchContext } from './batch-context.js';
import { LazyContext } from './lazy-context.js';
import { textOrBytes } from './decode.js';
import { valuesOf, type ConsumedRecord } from './consumed-record.js';

/** What Nest hands to handlers beside the payload. */
export interface NestContext {
  readonly consumer: () => Consumer | undefined;
  readonly producer: () => Producer | undefined;
  /** Somebody has set Nest's processing hooks. */
  hasHooks(): boolean;
  /** Runs Nest's processing hooks around one delivery, each exactly once. */
  withHooks<T>(context: KafkaContext, work: () => Promise<T>): Promise<T>;
}

/** What kafkajs's records hold beyond its types. */
type KafkajsMessage = KafkaMessage & { readonly magicByte: number; readonly batchContext: unknown };
type ContextArgs = ConstructorParameters<typeof KafkaContext>[0];

/**
 * `@Ctx()` of one delivery: the message as Nest shapes it, made of fresh copies when somebody asks for it. Keys and headers are text if they are UTF-8, else bytes;
 * never parsed.
 */
export function nestContext(record: ConsumedRecord, payload: unknown, nest: NestContext): KafkaContext {
  return new LazyContext(() => contextArgs(record, payload, nest));
}

/** The same of a batch. `record` and `payload`: the first of it. */
export function batchContext(
  record: ConsumedRecord,
  payload: unknown,
  { deliveries, nest }: { deliveries: readonly Delivery[]; nest: NestContext },
): BatchContext {
  return new BatchContext(contextArgs(record, payload, nest), deliveries);
}

function contextArgs(record: ConsumedRecord, payload: unknown, nest: NestContext): ContextArgs {
  const { magicByte, attributes, timestamp, offset, key, headers, batchContext } = record.message as KafkajsMessage;
  // Written out: this is made for every delivery, and copying kafkajs's object is several times slower.
  const message = {
    magicByte,
    attributes,
    timestamp,
    offset,
    batchContext,
    topic: record.topic,
    partition: record.partition,
    key: key === null ? null : textOrBytes(key),
    value: payload,
    headers: decodedHeaders(headers),
  };
  const heartbeat = async () => {}; // the fetch loop heartbeats however long a handler runs
  return [
    message as unknown as ContextArgs[0],
    record.partition,
    record.topic,
    nest.consumer() as Consumer,
    heartbeat,
    nest.producer() as Producer,
  ];
}

/** Own properties, whatever their names are: a header called `__proto__` stays a header. As in Nest, one that comes once is no array. */
function decodedHeaders(headers: IHeaders = {}): Record<string, unknown> {
  return Object.fromEntries(
    valuesOf(headers).map(([name, values]) => {
      const decoded = values.map((value) => (value === null ? null : textOrBytes(value)));
      return [name, decoded.length === 1 ? decoded[0] : decoded];
    }),
  );
}
