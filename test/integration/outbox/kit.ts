import { afterEach, beforeEach } from 'vitest';
import { OutboxRoom, type OutboxRoomOptions } from '#src/outbox/outbox-room.js';
import type { IdempotencyEvent } from '#src/shared/events.js';
import { TransactionScope } from '#src/transaction/transaction-scope.js';
import type { DataSource } from 'typeorm';
import { Topics, type StoredMessage } from '../kafka/topics.js';
import { onBrokers } from './on-brokers.js';
import { useDatabase, useSchema, type Orm, type OwnSchema } from '../schema/own-schema.js';

export const SOON = { delayMs: 20, factor: 1, maxDelayMs: 20, jitter: 'none' } as const;

export interface OutboxKit {
  readonly own: OwnSchema;
  readonly database: { readonly url: string };
  readonly dataSource: DataSource;
  readonly scope: TransactionScope;
  readonly events: IdempotencyEvent[];
  readonly log: string[];
  /** A process of its own, as far as this room can tell. Its relay runs only when it is started. */
  room(options?: Partial<OutboxRoomOptions>): OutboxRoom;
  rows(): Promise<Row[]>;
}

export interface Row {
  readonly id: string;
  readonly state: string;
  readonly eventId: string;
  readonly topic: string;
  readonly attempts: number;
  readonly code: string | null;
  readonly message: string | null;
}

/** Our tables, and rooms on them. */
export function useOutbox(orm?: Orm): OutboxKit {
  const database = useDatabase();
  const own = useSchema(database, orm);
  const rooms: OutboxRoom[] = [];
  const kit = { own, database } as unknown as { -readonly [K in keyof OutboxKit]: OutboxKit[K] };

  beforeEach(async () => {
    await own.dataSource.runMigrations();
    kit.dataSource = own.dataSource;
    kit.events = [];
    kit.log = [];
    kit.scope = new TransactionScope(own.dataSource, { preparedStatements: true, emit: () => {} });
    kit.scope.install();
    await kit.scope.watchServer({ restarted: () => {}, unreplicated: () => {} });
  });
  afterEach(async () => {
    await Promise.all(rooms.splice(0).map((room) => room.stop()));
    kit.scope.uninstall();
  });

  kit.room = (options = {}) => {
    const room = new OutboxRoom({
      isNeeded: true,
      relay: true,
      batch: 500,
      pollMs: 50,
      leaseMs: 2000,
      attempts: 3,
      maxBytes: 1_000_000,
      dedupeRetentionMs: 60_000,
      scope: kit.scope,
      query: (sql, parameters) => kit.scope.escape(() => own.dataSource.query(sql, parameters)),
      ...onBrokers(process.env['KAFKA_BROKERS']?.split(',') ?? []),
      emit: (event) => void kit.events.push(event),
      log: (message) => void kit.log.push(message),
      backoff: SOON,
      ...options,
    });
    room.open(own.name, true);
    rooms.push(room);
    return room;
  };
  kit.rows = () =>
    own.dataSource.query<Row[]>(
      'SELECT id, state, event_id AS "eventId", topic, attempts, error_code AS code, error_message AS message FROM outbox_messages ORDER BY id',
    );
  return kit;
}

export const valuesIn = async (topics: Topics, topic: string): Promise<(string | undefined)[]> =>
  (await topics.read(topic)).map(({ value }) => value);

export const idsOf = (messages: readonly StoredMessage[]): (string | undefined)[] =>
  messages.map(({ message }) => message.headers?.['event-id']?.toString());
