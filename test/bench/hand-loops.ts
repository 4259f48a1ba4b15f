import { Kafka, logLevel, type EachBatchPayload, type KafkaMessage } from 'kafkajs';
import { DataSource, type EntityManager } from 'typeorm';
import type { Contender } from './contenders.js';
import { dataSourceOptions } from './data-source.js';
import {
  CONSUMER,
  EFFECT,
  EFFECTS,
  HAND_CLAIM,
  HAND_CLAIMS,
  MAX_WAIT_MS,
  pauseOf,
  SHARED,
  type BenchEvent,
  type ContenderSetup,
} from './workload.js';

const BATCH = 500;

type Handle = (batch: EachBatchPayload['batch'], messages: KafkaMessage[], dataSource: DataSource) => Promise<void>;

/** kafkajs `eachBatch`, in chunks of so many messages, one offset commit a batch: what a careful team writes by hand. */
async function handLoop(setup: ContenderSetup, size: number, handle: Handle): Promise<() => Promise<void>> {
  const dataSource = await new DataSource(
    dataSourceOptions(setup) as ConstructorParameters<typeof DataSource>[0],
  ).initialize();
  const kafka = new Kafka({ clientId: setup.group, brokers: [...setup.brokers], logLevel: logLevel.ERROR });
  const consumer = kafka.consumer({ groupId: setup.group, maxWaitTimeInMs: MAX_WAIT_MS });
  await consumer.connect();
  await consumer.subscribe({ topics: [setup.topic], fromBeginning: true });

  const eachBatch = async ({ batch, resolveOffset, heartbeat, commitOffsetsIfNecessary }: EachBatchPayload) => {
    for (let at = 0; at < batch.messages.length; at += size) {
      const messages = batch.messages.slice(at, at + size);
      await handle(batch, messages, dataSource);
      resolveOffset(messages.at(-1)!.offset);
      await heartbeat();
    }
    const next = (BigInt(batch.lastOffset()) + 1n).toString();
    await commitOffsetsIfNecessary({
      topics: [{ topic: batch.topic, partitions: [{ partition: batch.partition, offset: next }] }],
    });
  };
  await consumer.run({
    autoCommit: false,
    eachBatchAutoResolve: false,
    partitionsConsumedConcurrently: setup.partitions,
    eachBatch,
  });
  return async () => {
    await consumer.disconnect();
    await dataSource.destroy();
  };
}

const eventOf = ({ value }: KafkaMessage) => JSON.parse(value!.toString()) as BenchEvent;
const idOf = ({ headers }: KafkaMessage) => headers!['event-id']!.toString();

/** One transaction a message. */
export const handMessage: Contender = (setup, watch) =>
  handLoop(setup, 1, async ({ topic, partition }, [message], dataSource) => {
    const event = eventOf(message!);
    await dataSource.transaction(async (manager) => {
      const values = [CONSUMER, idOf(message!), topic, partition, message!.offset];
      const claimed = (await manager.query(HAND_CLAIM, values)) as unknown[];
      if (claimed.length === 0) return;
      await pauseOf(setup);
      await manager.query(EFFECT, [event.id]);
    });
    watch.handled();
  });

/** One transaction for so many messages, one claim for all of them; then whatever is to be done with the fresh events. */
function handTogether(
  size: number,
  work: (manager: EntityManager, fresh: BenchEvent[], setup: ContenderSetup) => Promise<void>,
): Contender {
  return (setup, watch) =>
    handLoop(setup, size, async ({ topic, partition }, messages, dataSource) => {
      const [ids, offsets] = [messages.map(idOf), messages.map(({ offset }) => offset)];
      await dataSource.transaction(async (manager) => {
        const values = [CONSUMER, topic, partition, ids, offsets];
        const claimed = (await manager.query(HAND_CLAIMS, values)) as { event_id: string }[];
        const toDo = new Set(claimed.map(({ event_id }) => event_id));
        // delete: of an id that comes twice the first runs
        await work(manager, messages.filter((_, at) => toDo.delete(ids[at]!)).map(eventOf), setup);
      });
      watch.handled(messages.length);
    });
}

/** One statement for each event, awaited, as in a handler of single events. */
export const handShared = handTogether(SHARED, async (manager, fresh, setup) => {
  for (const { id } of fresh) {
    await pauseOf(setup);
    await manager.query(EFFECT, [id]);
  }
});

/** One statement for all. */
export const handBatch = handTogether(BATCH, async (manager, fresh, setup) => {
  if (fresh.length === 0) return;
  await pauseOf(setup);
  await manager.query(EFFECTS, [fresh.map(({ id }) => id)]);
});
