import type { DataSource } from 'typeorm';
import { afterEach, beforeEach } from 'vitest';
import type { DeadLetter, DeadLetterPublisher } from '#src/parking/dead-letters.js';
import { ParkingRoom, type ParkingRoomOptions } from '#src/parking/parking-room.js';
import { ParkedEventEntity, type ParkedEventRow } from '#src/schema/index.js';
import type { IdempotencyEvent } from '#src/shared/events.js';
import { noteOf } from '#src/shared/failed-attempt.js';
import type {
  ParkedDelivery,
  ParkRequest,
  PartitionParking,
  Redelivery,
  RedeliveryReport,
  ParkedSettings,
  StoredRecord,
} from '#src/shared/parking.js';
import { useDatabase, useSchema, type Orm, type OwnSchema } from '../schema/own-schema.js';

export const CONSUMER = 'billing.charge';
export const TOPIC = 'orders';
export const BACKOFF = { delayMs: 0, factor: 1, maxDelayMs: 0, jitter: 'none' } as const;

/** A record of partition 0 of the topic. */
export function record(offset: number, parts: Partial<StoredRecord> = {}): StoredRecord {
  return {
    topic: TOPIC,
    partition: 0,
    offset: BigInt(offset),
    timestamp: new Date(1_764_000_000_123 + offset),
    key: Buffer.from('k'),
    value: Buffer.from(`value ${offset}`),
    headers: [['event-id', Buffer.from(`e${offset}`)]],
    ...parts,
  };
}

/** A request to park it: after one failed attempt, key held, four rounds due at once. */
export function request(of: StoredRecord, parts: Partial<ParkRequest> = {}): ParkRequest {
  const error = parts.error ?? new Error('refused');
  return {
    record: of,
    consumer: CONSUMER,
    eventId: `e${of.offset}`,
    reason: 'exhausted',
    error,
    failures: [noteOf(error, new Date())],
    attempts: 1,
    holdKey: true,
    redelivery: { ...BACKOFF, rounds: 4 },
    ...parts,
  };
}

export const gated = (of: StoredRecord, parts: { holdKey?: boolean; consumer?: string } = {}) => ({
  record: of,
  consumer: CONSUMER,
  eventId: `e${of.offset}`,
  holdKey: true,
  ...parts,
});

export interface ParkingKit {
  readonly dataSource: DataSource;
  readonly own: OwnSchema;
  readonly events: IdempotencyEvent[];
  readonly log: string[];
  readonly letters: LetterBox;
  /** A process of its own, as far as this room can tell; stopped after the test. */
  room(options?: Partial<ParkingRoomOptions>): ParkingRoom;
  /** The partition of a new owner that goes on at `from`. */
  owner(from?: number, room?: ParkingRoom): Promise<PartitionParking>;
  rows(): Promise<ParkedEventRow[]>;
  effects(): Promise<string[]>;
}

/** Our tables, and `effects`, to which the consumer of these tests appends the ids it has handled. */
export function useParking(orm?: Orm): ParkingKit {
  const own = useSchema(useDatabase(), orm);
  const rooms: ParkingRoom[] = [];
  const kit = { own, events: [], log: [] } as unknown as { -readonly [K in keyof ParkingKit]: ParkingKit[K] };

  beforeEach(async () => {
    await own.dataSource.runMigrations();
    await own.dataSource.query('CREATE TABLE effects (nr bigserial, event_id text NOT NULL)');
    kit.dataSource = own.dataSource;
    kit.events = [];
    kit.log = [];
    kit.letters = new LetterBox();
  });
  afterEach(async () => {
    await Promise.all(rooms.splice(0).map((room) => room.stop()));
  });

  kit.room = (options = {}) => {
    const room = new ParkingRoom({
      groupId: 'billing',
      query: (sql, parameters) => own.dataSource.query(sql, parameters),
      emit: (event) => void kit.events.push(event),
      log: (message) => void kit.log.push(message),
      pollMs: 20,
      discardedMs: 1000,
      deadLetters: undefined,
      ...options,
    });
    room.open(own.name);
    rooms.push(room);
    return room;
  };
  kit.owner = async (from = 0, room = kit.room()) => {
    const [partition] = await room.parking.open([{ topic: TOPIC, partition: 0, from: BigInt(from) }]);
    return partition!;
  };
  kit.rows = () => own.dataSource.getRepository(ParkedEventEntity).find({ order: { recordOffset: 'ASC' } });
  kit.effects = async () => {
    const rows = (await own.dataSource.query('SELECT event_id AS id FROM effects ORDER BY nr')) as { id: string }[];
    return rows.map(({ id }) => id);
  };
  return kit;
}

/** The dead-letter topic's stand-in: this room's side of it is the port. */
export class LetterBox implements DeadLetterPublisher {
  readonly letters: DeadLetter[] = [];
  answer: (letter: DeadLetter) => 'sent' | 'too-large' | Promise<'sent'> = () => 'sent';

  async publish(letter: DeadLetter): Promise<'sent' | 'too-large'> {
    const answer = await this.answer(letter);
    if (answer === 'sent') this.letters.push(letter);
    return answer;
  }
}

type Report = RedeliveryReport | 'run';

/** Stands for the consumer: claims, writes its effect and takes the row away in one real transaction. `before` may answer in the handler's place. */
export class ConsumerDouble implements Redelivery {
  readonly consumers = new Map<string, ParkedSettings>([
    [CONSUMER, { timeoutMs: 1000, retry: { ...BACKOFF, attempts: 1 }, redelivery: { ...BACKOFF, rounds: 4 } }],
  ]);
  readonly seen: ParkedDelivery[] = [];

  constructor(
    private readonly dataSource: DataSource,
    private readonly before: (parked: ParkedDelivery) => Report | Promise<Report> = () => 'run',
  ) {}

  async redeliver(parked: ParkedDelivery): Promise<RedeliveryReport> {
    this.seen.push(parked);
    const report = await this.before(parked);
    return report === 'run' ? this.handle(parked) : report;
  }

  async handle({ record: of, consumer, eventId, removal }: ParkedDelivery): Promise<RedeliveryReport> {
    const runner = this.dataSource.createQueryRunner();
    await runner.connect();
    try {
      await runner.startTransaction();
      const values = [consumer, eventId, of.topic, of.partition, of.offset.toString()];
      const claimed = (await runner.query(
        'INSERT INTO processed_events (consumer, event_id, topic, partition, record_offset, fingerprint) VALUES ($1, $2, $3, $4, $5, 0) ON CONFLICT DO NOTHING RETURNING 1',
        values,
      )) as unknown[];
      if (claimed.length > 0) await runner.query('INSERT INTO effects (event_id) VALUES ($1)', [eventId]);
      if ((await removal.removeWith((sql, parameters) => runner.query(sql, parameters))) === 'gone') {
        await runner.rollbackTransaction();
        return { outcome: 'busy', error: new Error('somebody else has it') };
      }
      await runner.commitTransaction();
      return { outcome: claimed.length > 0 ? 'processed' : 'duplicate' };
    } catch (error) {
      return { outcome: 'unknown', error };
    } finally {
      await runner.release();
    }
  }
}

export function failing(
  failure: 'permanent' | 'transient' | 'infrastructure',
  error: Error = new Error('no'),
): RedeliveryReport {
  return { outcome: 'failed', failure, error, noted: noteOf(error, new Date()) };
}
