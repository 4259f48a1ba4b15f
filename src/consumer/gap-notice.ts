import { Logger } from '@nestjs/common';
import { IdempotencyError } from '../shared/errors.js';
import type { EmitEvent } from '../shared/events.js';
import type { TopicPartition } from '../kafka/positions.js';
import type { Anchor, Gap } from './anchor.js';

/** Tells where a partition does not go on where the group stood: an event and a line in the log, each time. */
export class GapNotice {
  readonly #logger = new Logger('IdempotentKafkaServer');

  constructor(
    private readonly groupId: string,
    private readonly emit: EmitEvent,
  ) {}

  tell({ topic, partition }: TopicPartition, { from, to }: Gap, kind: Anchor['kind']): void {
    this.emit({ name: 'gap', topic, partition, from: from.toString(), to: to.toString() });
    if (kind === 'stop') return; // the stop itself is told
    this.#logger.error(
      `The next offset of ${topic}[${partition}] was ${from}, but Kafka holds nothing there: its first record is ${to}. What lies before was deleted unread, or the topic or the group's offsets were made anew. Going on at ${to} (OFFSET_OUT_OF_RANGE)`,
    );
  }

  /** The group has no offset although it had one. */
  tellForgotten({ topic, partition }: TopicPartition, at: bigint): void {
    this.emit({ name: 'gap', topic, partition, from: '-1', to: at.toString() });
    this.#logger.error(
      `Group ${this.groupId} has no offset for ${topic}[${partition}], although events of this topic have been handled here. The group's offsets were deleted or have expired, or it has a new name. Going on at ${at}: what is known as handled is skipped (OFFSET_OUT_OF_RANGE)`,
    );
  }
}

export function outOfRange({ topic, partition }: TopicPartition, { from, to }: Gap): IdempotencyError {
  return new IdempotencyError(
    'OFFSET_OUT_OF_RANGE',
    `The next offset of ${topic}[${partition}] is ${from}, but Kafka holds nothing there: its first record is ${to}. With kafka.offsetOutOfRange 'fail' the partition stops and the group's offset stays. Reset the group to where it shall go on, or allow 'earliest'`,
  );
}
