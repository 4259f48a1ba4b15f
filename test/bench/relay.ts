import { randomUUID } from 'node:crypto';
import { channel } from 'node:diagnostics_channel';
import { Module, type INestApplicationContext } from '@nestjs/common';
import { NestFactory } from '@nestjs/core';
import { TypeOrmModule } from '@nestjs/typeorm';
import { logLevel } from 'kafkajs';
import { IdempotencyModule, type IdempotencyEvent } from 'nestjs-kafka-idempotency';
import { keyShard } from '#src/kafka/key-shard.js';
import type { World } from '../e2e/kit/world.js';
import type { Contender } from './contenders.js';
import { dataSourceOptions, type DataSourceSetup } from './data-source.js';
import { eventOf, KEYS, VALUE_BYTES, type ContenderSetup } from './workload.js';

export type RelaySetup = DataSourceSetup & Pick<ContenderSetup, 'brokers' | 'group'>;

const ROWS_AT_ONCE = 50_000;

/** A backlog of events in the outbox; gives their number. */
export async function fillOutbox(world: World, topic: string, events: number): Promise<number> {
  for (let from = 0; from < events; from += ROWS_AT_ONCE)
    await fillFrom(world, topic, from, Math.min(events, from + ROWS_AT_ONCE));
  return events;
}

async function fillFrom(world: World, topic: string, from: number, to: number): Promise<void> {
  const ids = Array.from({ length: to - from }, () => randomUUID());
  const keys = ids.map((_, at) => `key-${(from + at) % KEYS}`);
  const shards = keys.map((key) => keyShard(Buffer.from(key)));
  await world.db.query(
    `INSERT INTO outbox_messages (shard, event_id, topic, message_key, message_value, header_names, header_values)
     SELECT shard, id, $1, convert_to(key, 'UTF8'), convert_to(value, 'UTF8'), '{event-id}', ARRAY[convert_to(id, 'UTF8')]
     FROM unnest($2::smallint[], $3::text[], $4::text[], $5::text[]) AS event (shard, id, key, value)`,
    [topic, shards, ids, keys, ids.map((id) => eventOf(id, VALUE_BYTES))],
  );
}

export async function checkSent(world: World, topic: string, events: number): Promise<void> {
  const [row] = await world.db.query<[{ left: string }]>('SELECT count(*) AS left FROM outbox_messages');
  const ends = await world.admin.fetchTopicOffsets(topic);
  const sent = ends.reduce((sum, { high }) => sum + Number(high), 0);
  if (row.left !== '0' || sent !== events)
    throw new Error(`relay: ${sent} of ${events} sent, ${row.left} rows left: the figure does not count`);
}

/** The backlog stands in the outbox, and what is timed is how it is sent. */
export const relay: Contender = async (setup, watch) => {
  onRelayed((messages) => watch.handled(messages));
  const app = await startRelay(setup);
  return () => app.close();
};

/** Called when Kafka has acknowledged so many. */
export function onRelayed(listener: (messages: number) => void): void {
  channel('nestjs-kafka-idempotency:relayed').subscribe((event) => {
    listener((event as IdempotencyEvent & { messages: number }).messages);
  });
}

/** A process that publishes and relays, and does nothing else. */
export function startRelay(setup: RelaySetup): Promise<INestApplicationContext> {
  @Module({
    imports: [
      TypeOrmModule.forRoot(dataSourceOptions(setup)),
      IdempotencyModule.forRoot({
        kafka: {
          client: { clientId: setup.group, brokers: [...setup.brokers], logLevel: logLevel.ERROR },
          consumer: { groupId: setup.group },
        },
      }),
    ],
  })
  class RelayModule {}
  return NestFactory.createApplicationContext(RelayModule, { logger: ['error', 'warn'] });
}
