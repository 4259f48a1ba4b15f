import type { Pool } from 'pg';
import { until } from 'nestjs-kafka-idempotency/testing';
import type { Effect, LoggedRecord, ParkedRow } from './facts.js';
import type { Stage } from './stage.js';
import { CONSUMERS, HAS_PARKING } from './workload.js';

/** In the order in which the handlers wrote them. */
export async function effectsOf(database: Pool): Promise<Effect[]> {
  const { rows } = await database.query<Effect>(
    'SELECT consumer, event_id AS id, key FROM effects ORDER BY effects.id',
  );
  return rows;
}

export async function parkedOf(database: Pool): Promise<ParkedRow[]> {
  if (!HAS_PARKING) return [];
  const { rows } = await database.query<ParkedRow>(
    'SELECT consumer, event_id AS id, state FROM parked_events ORDER BY parked_events.id',
  );
  return rows;
}

/** Every record of the topics, read from the beginning to the end by a group of its own. */
export async function logOf(stage: Stage): Promise<LoggedRecord[]> {
  const left = new Map([...(await stage.ends())].filter(([, end]) => end > 0));
  const records: LoggedRecord[] = [];
  const reader = stage.client('soak-reader').consumer({ groupId: 'soak-reader', maxWaitTimeInMs: 200 });
  await reader.connect();
  await reader.subscribe({ topics: CONSUMERS.map(({ topic }) => topic), fromBeginning: true });
  await reader.run({
    autoCommit: false,
    eachBatch: ({ batch }) => {
      const { topic, partition, messages } = batch;
      for (const { offset, key, headers } of messages)
        records.push({
          topic,
          partition,
          offset: Number(offset),
          id: String(headers?.['event-id']),
          key: String(key),
        });
      if (Number(batch.lastOffset()) + 1 >= (left.get(`${topic}/${partition}`) ?? 0))
        left.delete(`${topic}/${partition}`);
      return Promise.resolve();
    },
  });
  await until(() => left.size === 0, { what: 'the end of the topics', timeoutMs: 120_000 });
  await reader.disconnect();
  return records.sort((a, b) => a.offset - b.offset);
}
