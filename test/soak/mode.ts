import type { IdempotencyOptions } from 'nestjs-kafka-idempotency';

/** How the workers bring events to their handlers; what these write is the same. */
export const MODES = ['default', 'shared', 'keys', 'interleave', 'batch', 'window'] as const;
export type Mode = (typeof MODES)[number];

/** What a mode sets in forRoot. Batches are a matter of the decorator. */
export const MODE_OPTIONS: Readonly<Record<Mode, Partial<IdempotencyOptions>>> = {
  default: {},
  shared: { messagesPerTransaction: 50 },
  keys: { concurrency: { keys: 4 } },
  interleave: { messagesPerTransaction: 50, concurrency: { keys: 8, interleave: true } },
  batch: {},
  window: { durability: 'window' },
};

export function isMode(text: string): text is Mode {
  return (MODES as readonly string[]).includes(text);
}
