import { channel } from 'node:diagnostics_channel';
import { setTimeout as sleep } from 'node:timers/promises';
import type { Type } from '@nestjs/common';
import {
  currentDelivery,
  type EventName,
  type EventPublisher,
  type IdempotencyEvent,
  type IdempotentBatchOptions,
} from 'nestjs-kafka-idempotency';
import { batchHandler, eventHandler, exactlyOnceHandler, writeEffect, type TestEvent, type Tools } from './handlers.js';
import { startService, type Place } from './service.js';

/** What a service in a process of its own shall do: its one argument, as JSON. */
export interface WorkerPlan {
  readonly place: Place;
  readonly topic: string;
  /** The signal it sends to itself, synchronously, when the event comes. */
  readonly failpoint?: Failpoint;
  /** Events whose handler throws after it has written. */
  readonly failing?: readonly string[];
  /** In how many attempts they do; default in all. */
  readonly failures?: number;
  /** Events whose handler ends the process when it has written. */
  readonly deadly?: readonly string[];
  readonly retryDelayMs?: number;
  /** Keys at work at once. */
  readonly keys?: number;
  /** Together with `keys` and `messagesPerTransaction`. */
  readonly interleave?: boolean;
  readonly messagesPerTransaction?: number;
  readonly durability?: 'commit' | 'window';
  readonly commitIntervalMs?: number;
  /** Its handler takes batches. */
  readonly batch?: IdempotentBatchOptions;
  /** It is an exactly-once handler that sends each event on to that topic, and changes no database. */
  readonly forwardTo?: string;
  /** How long the handler lives on after it has written. */
  readonly handlerMs?: number;
  /** Events whose handler keeps the event loop busy for so long, when it has written. */
  readonly blocking?: { readonly id: string; readonly ms: number };
  /** Events carry `partition` and `seq`, which are written too. */
  readonly numbered?: boolean;
  /** It tells 20 times a second how many bytes lie in buffers, and how many records wait. */
  readonly tellsMemory?: boolean;
  /** Events whose handler writes once more when it has ended, and leaves the rejection to nobody. */
  readonly late?: readonly string[];
}

export interface Failpoint {
  readonly at: EventName;
  /** Of the record; at `committing` and `committed`, the offset written. Default any. */
  readonly offset?: string;
  /** At which of these events. Default the first. */
  readonly nth?: number;
  readonly signal?: 'SIGKILL' | 'SIGSTOP';
}

/** What it tells its parent: each handler call, and each event of the package. */
export type WorkerReport =
  | { readonly kind: 'call'; readonly eventId: string; readonly attempt: number | undefined }
  | { readonly kind: 'event'; readonly name: EventName; readonly offset: string | undefined }
  | { readonly kind: 'memory'; readonly buffers: number; readonly buffered: number };

const REPORTED: readonly EventName[] = [
  'received',
  'claimed',
  'processed',
  'duplicate',
  'failed',
  'busy',
  'unknown',
  'committed',
  'parked',
];

if (process.send !== undefined) {
  process.once('disconnect', () => process.exit(1)); // the test is gone
  await run(JSON.parse(process.argv[2] ?? '') as WorkerPlan);
}

async function run(plan: WorkerPlan): Promise<void> {
  for (const name of REPORTED) on(name, (event) => tell({ kind: 'event', name, offset: offsetsOf(event)[0] }));
  const { failpoint } = plan;
  if (failpoint !== undefined) {
    let met = 0;
    on(failpoint.at, (event) => {
      if (failpoint.offset !== undefined && !offsetsOf(event).includes(failpoint.offset)) return;
      met += 1;
      if (met === (failpoint.nth ?? 1)) process.kill(process.pid, failpoint.signal ?? 'SIGKILL');
    });
  }
  const { app, server } = await startService(plan.place, {
    controllers: [controllerOf(plan)],
    options: {
      claimTimeout: 300,
      ...(plan.messagesPerTransaction !== undefined && { messagesPerTransaction: plan.messagesPerTransaction }),
      ...(plan.durability !== undefined && { durability: plan.durability }),
      ...(plan.commitIntervalMs !== undefined && { commitInterval: plan.commitIntervalMs }),
      ...(plan.keys !== undefined && {
        concurrency: { keys: plan.keys, ...(plan.interleave !== undefined && { interleave: plan.interleave }) },
      }),
      retry: { attempts: Infinity, delay: plan.retryDelayMs ?? 50, maxDelay: 60_000, factor: 1, jitter: 'none' },
      kafka: { consumer: { groupId: plan.place.group, sessionTimeout: 1500, heartbeatInterval: 300 } },
    },
  });
  app.enableShutdownHooks();
  // Closes, and leaves the end of the process to Node: what is still open keeps it alive.
  process.once('message', () => {
    void app.close().then(() => {
      process.removeAllListeners('disconnect');
      process.disconnect();
    });
  });
  if (plan.tellsMemory)
    setInterval(() => {
      const buffered = server.health().partitions.reduce((sum, partition) => sum + partition.buffered, 0);
      tell({ kind: 'memory', buffers: process.memoryUsage().arrayBuffers, buffered });
    }, 50);
}

function controllerOf(plan: WorkerPlan): Type {
  if (plan.forwardTo !== undefined) return forwarder(plan, plan.forwardTo);
  if (plan.batch === undefined) return eventHandler(plan.topic, (event, tools) => handle(plan, event, tools));
  const handleAll = async (events: TestEvent[], tools: Tools) => {
    for (const event of events) await handle(plan, event, tools);
  };
  return batchHandler(plan.topic, handleAll, plan.batch);
}

function forwarder({ topic, handlerMs }: WorkerPlan, to: string): Type {
  const forward = async (event: TestEvent, publisher: EventPublisher) => {
    await publisher.publish(to, event, { key: currentDelivery()!.key! });
    if (handlerMs !== undefined) await sleep(handlerMs); // a slow handler is what the test asks for
  };
  return exactlyOnceHandler(topic, forward, { maxSize: 50 });
}

async function handle(plan: WorkerPlan, event: TestEvent, tools: Tools): Promise<void> {
  const { id } = event;
  tell({ kind: 'call', eventId: id, attempt: currentDelivery()?.attempt });
  if (plan.numbered) {
    const { partition, seq } = event as TestEvent & { partition: number; seq: number };
    await tools.dataSource.query('INSERT INTO effects (event_id, key, seq) VALUES ($1, $2, $3)', [id, partition, seq]);
  } else await writeEffect(tools, id);
  if (plan.blocking?.id === id) block(plan.blocking.ms);
  if (plan.deadly?.includes(id)) process.kill(process.pid, 'SIGKILL');
  if (plan.handlerMs !== undefined) await sleep(plan.handlerMs); // a slow handler is what the test asks for
  const attempt = currentDelivery()?.attempt ?? 1;
  if (plan.failing?.includes(id) && attempt <= (plan.failures ?? Infinity)) throw new Error(`no luck with ${id}`);
  if (plan.late?.includes(id)) setTimeout(() => void writeEffect(tools, `${id}, late`), 50);
}

function block(ms: number): void {
  const until = performance.now() + ms;
  while (performance.now() < until);
}

function on(name: EventName, then: (event: IdempotencyEvent) => void): void {
  channel(`nestjs-kafka-idempotency:${name}`).subscribe((event) => then(event as IdempotencyEvent));
}

function offsetsOf(event: IdempotencyEvent): string[] {
  if ('offset' in event) return [event.offset];
  return 'offsets' in event ? event.offsets.map(({ offset }) => offset) : [];
}

function tell(report: WorkerReport): void {
  process.send?.(report);
}
