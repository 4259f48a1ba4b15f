import { Logger } from '@nestjs/common';
import { KafkaHeaders } from '@nestjs/microservices';
import type { KafkaMessage, Message, Producer } from 'kafkajs';
import { IdempotencyError } from '../shared/errors.js';
import { errorChain } from '../shared/sql-state.js';
import { within } from '../shared/within.js';
import type { CheckedProducer } from '../kafka/checked-producer.js';

const GIVE_UP_MS = 500;
const UNROUTABLE: readonly unknown[] = ['UNKNOWN_TOPIC_OR_PARTITION', 'INVALID_TOPIC_EXCEPTION'];

/** A record that asks for a reply, as Nest's ClientKafka sends it. */
export interface KafkaRequest {
  readonly correlationId: Buffer;
  readonly replyTopic: string;
  readonly replyPartition: number | undefined;
}

export function requestOf({ headers }: KafkaMessage): KafkaRequest | undefined {
  const correlationId = single(headers?.[KafkaHeaders.CORRELATION_ID]);
  const replyTopic = single(headers?.[KafkaHeaders.REPLY_TOPIC]);
  if (correlationId === undefined || replyTopic === undefined) return undefined;
  const partition = Number.parseInt(single(headers?.[KafkaHeaders.REPLY_PARTITION])?.toString() ?? '', 10);
  return {
    correlationId,
    replyTopic: replyTopic.toString(),
    replyPartition: Number.isSafeInteger(partition) ? partition : undefined,
  };
}

/**
 * Answers requests of `@MessagePattern` handlers in the format of Nest's ClientKafka. A reply counts only once the broker has acknowledged it; a
 * failing request gets its error as the reply.
 */
export class Replies {
  readonly #logger = new Logger('IdempotentKafkaServer');

  /** `producer`: the one for handlers, from `@Ctx()`. */
  constructor(
    private readonly sender: CheckedProducer,
    readonly producer: Producer,
  ) {}

  /** Runs the request and sends what it gave. Rejects only if the reply could not be sent. */
  async answer(request: KafkaRequest, run: () => Promise<readonly unknown[]>): Promise<void> {
    // A value that cannot be written is the handler's error too: the request would else run again for ever.
    const messages = await run()
      .then((values) => values.map((value) => replyOf(request, value)))
      .catch((error: unknown) => [errorReplyOf(request, error)]);
    if (messages.length === 0) messages.push(replyOf(request, undefined));
    await this.#send(request, messages).catch((error: unknown) => {
      if (isUnroutable(error)) return this.#giveUp(request, error);
      if (IdempotencyError.is(error) && error.retryable) throw error;
      return this.#send(request, [errorReplyOf(request, error)]); // too large, or not to be written: no other run would help
    });
  }

  /** The asker named a topic or partition that is not there: the request would else run again and again, for nobody. */
  #giveUp({ replyTopic, replyPartition }: KafkaRequest, error: unknown): void {
    const place = `${replyTopic}[${replyPartition ?? 0}]`;
    this.#logger.error(
      `A reply cannot be sent to ${place}, so its request is settled without: ${(error as Error).message}`,
    );
  }

  async close(): Promise<void> {
    await Promise.all([this.sender.close(), within(this.producer.disconnect(), GIVE_UP_MS)]);
  }

  async #send(request: KafkaRequest, messages: readonly Message[]): Promise<void> {
    messages.at(-1)!.headers![KafkaHeaders.NEST_IS_DISPOSED] = Buffer.alloc(1);
    await this.sender.send(messages.map((message) => ({ ...message, topic: request.replyTopic })));
  }
}

/** The records are missing in every answer, or the broker knows no such topic. */
function isUnroutable(error: unknown): boolean {
  const refused = errorChain(error).map((link) => (link as { type?: unknown }).type);
  return IdempotencyError.is(error, 'SEND_INCOMPLETE') || UNROUTABLE.some((type) => refused.includes(type));
}

function replyOf(request: KafkaRequest, value: unknown): Message {
  const given = isKafkaMessage(value) ? value : { value };
  const headers = { ...(given.headers as Message['headers']), [KafkaHeaders.CORRELATION_ID]: request.correlationId };
  return {
    key: given.key === undefined || given.key === null ? null : (encoded(given.key) as string | Buffer),
    value: encoded(given.value),
    headers,
    partition: request.replyPartition ?? 0, // one for all replies of a request, so that they stay in order
  };
}

function errorReplyOf(request: KafkaRequest, error: unknown): Message {
  const reply = replyOf(request, undefined);
  const shown = error instanceof Error ? { status: 'error', message: error.message } : error;
  reply.headers![KafkaHeaders.NEST_ERR] = Buffer.from(
    typeof shown === 'object' ? jsonOf(shown) : String(shown as string),
  );
  return reply;
}

/** The asker has to hear of an error also if it is one that JSON cannot hold (a cycle, a BigInt). */
function jsonOf(error: object | null): string {
  try {
    return JSON.stringify(error);
  } catch (cause) {
    const message = (error as { message?: unknown } | null)?.message;
    return JSON.stringify({ status: 'error', message: typeof message === 'string' ? message : String(cause) });
  }
}

function isKafkaMessage(value: unknown): value is { key?: unknown; value?: unknown; headers?: unknown } {
  return typeof value === 'object' && value !== null && ('key' in value || 'value' in value);
}

/** As Nest's KafkaRequestSerializer writes values: text and bytes as they are, objects as JSON, nothing as null. */
function encoded(value: unknown): string | Buffer | null {
  if (value === undefined || value === null) return null;
  if (typeof value === 'string' || Buffer.isBuffer(value)) return value;
  return typeof value === 'object' ? JSON.stringify(value) : String(value as number);
}

function single(header: Buffer | string | (Buffer | string)[] | undefined): Buffer | undefined {
  const value = Array.isArray(header) ? (header.length === 1 ? header[0] : undefined) : header;
  return value === undefined || value === null ? undefined : Buffer.from(value as Buffer); // kafkajs gives null for a header without a value
}
