import type { Batch, KafkaMessage } from 'kafkajs';
import type { Pool } from 'pg';
import { until } from 'nestjs-kafka-idempotency/testing';
import type { Effect, Import, LoggedRecord, Output, ParkedRow } from './facts.js';
import type { Stage } from './stage.js';
import { HAS_OUTBOX, HAS_PARKING, IMPORT_TOPIC, OUTPUT_TOPIC, type SoakOutput } from './workload.js';

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

/** Rows that are still to be sent, or parked. */
export async function outboxOf(database: Pool): Promise<number> {
  if (!HAS_OUTBOX) return 0;
  const { rows } = await database.query<{ n: number }>('SELECT count(*)::int AS n FROM outbox_messages');
  return rows[0]!.n;
}

/** Every record of the topics. */
export async function logOf(stage: Stage): Promise<LoggedRecord[]> {
  const records: LoggedRecord[] = [];
  await readAll(stage, stage.inputs, ({ topic, partition }, { offset, key, headers }) =>
    records.push({
      topic,
      partition,
      offset: Number(offset),
      id: String(headers?.['event-id']),
      key: String(key),
    }),
  );
  return records.sort((a, b) => a.offset - b.offset);
}

/** What consumers of the output topic see, in the order of each partition. */
export async function outputsOf(stage: Stage): Promise<Output[] | undefined> {
  if (!HAS_OUTBOX) return undefined;
  const outputs: Output[] = [];
  await readAll(stage, [OUTPUT_TOPIC], (_, { key, value, headers }) => {
    const { consumer, id } = JSON.parse(String(value)) as SoakOutput;
    outputs.push({ eventId: String(headers?.['event-id']), key: String(key), consumer, id });
  });
  return outputs;
}

/** What came of a job's inputs. */
export async function importsOf(stage: Stage): Promise<Import[]> {
  const imports: Import[] = [];
  await readAll(stage, [IMPORT_TOPIC], (_, { value, headers }) =>
    imports.push({ eventId: String(headers?.['event-id']), input: String(value) }),
  );
  return imports;
}

/** From the beginning to the end, by a group of its own that reads what is committed. */
async function readAll(
  stage: Stage,
  topics: readonly string[],
  seen: (batch: Batch, message: KafkaMessage) => void,
): Promise<void> {
  const left = new Map([...(await stage.ends(topics))].filter(([, end]) => end > 0));
  const groupId = `soak-reader-${topics.join('-')}`;
  const reader = stage.client('soak-reader').consumer({ groupId, maxWaitTimeInMs: 200, readUncommitted: false });
  await reader.connect();
  await reader.subscribe({ topics: [...topics], fromBeginning: true });
  await reader.run({
    autoCommit: false,
    eachBatch: ({ batch }) => {
      for (const message of batch.messages) seen(batch, message);
      const partition = `${batch.topic}/${batch.partition}`;
      if (Number(batch.lastOffset()) + 1 >= (left.get(partition) ?? 0)) left.delete(partition);
      return Promise.resolve();
    },
  });
  await until(() => left.size === 0, { what: 'the end of the topics', timeoutMs: 120_000 });
  await reader.disconnect();
}
