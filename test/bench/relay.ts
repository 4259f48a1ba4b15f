import { randomUUID } from 'node:crypto';
import { channel } from 'node:diagnostics_channel';
import { Module } from '@nestjs/common';
import { NestFactory } from '@nestjs/core';
import { TypeOrmModule } from '@nestjs/typeorm';
import { logLevel } from 'kafkajs';
import { IdempotencyModule, type IdempotencyEvent } from 'nestjs-kafka-idempotency';
import { keyShard } from '#src/kafka/key-shard.js';
import type { World } from '../e2e/kit/world.js';
import type { Contender } from './contenders.js';
import { dataSourceOptions } from './data-source.js';
import { eventOf, KEYS, VALUE_BYTES } from './workload.js';

/** A backlog of events in the outbox; gives their number. */
export async function fillOutbox(world: World, topic: string, events: number): Promise<number> {
  const ids = Array.from({ length: events }, () => randomUUID());
  const keys = ids.map((_, at) => `key-${at % KEYS}`);
  const shards = keys.map((key) => keyShard(Buffer.from(key)));
  await world.db.query(
    `INSERT INTO outbox_messages (shard, event_id, topic, message_key, message_value, header_names, header_values)
     SELECT shard, id, $1, convert_to(key, 'UTF8'), convert_to(value, 'UTF8'), '{event-id}', ARRAY[convert_to(id, 'UTF8')]
     FROM unnest($2::smallint[], $3::text[], $4::text[], $5::text[]) AS event (shard, id, key, value)`,
    [topic, shards, ids, keys, ids.map((id) => eventOf(id, VALUE_BYTES))],
  );
  return events;
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
  channel('nestjs-kafka-idempotency:relayed').subscribe((event) => {
    watch.handled((event as IdempotencyEvent & { messages: number }).messages);
  });
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
  const app = await NestFactory.createApplicationContext(RelayModule, { logger: ['error', 'warn'] });
  return () => app.close();
};
