import { EntitySchema } from 'typeorm';
import { PARKED_EVENTS } from './parked-events.js';

/** A row of `parked_events`, for reading. What changes one is the service `ParkedEvents`. */
export interface ParkedEventRow {
  id: string;
  state: 'scheduled' | 'dead' | 'held' | 'discarded';
  consumer: string;
  groupId: string;
  topic: string;
  partition: number;
  recordOffset: string;
  recordTimestamp: Date;
  eventId: string | null;
  recordKey: Buffer | null;
  recordValue: Buffer | null;
  headerNames: string[];
  headerValues: (Buffer | null)[];
  holdKey: Buffer | null;
  reason: string;
  errorCode: string | null;
  errorName: string | null;
  errorMessage: string | null;
  attempts: number;
  rounds: number;
  replays: number;
  history: Record<string, unknown>[];
  editedValue: Buffer | null;
  version: number;
  dueAt: Date | null;
  firstFailedAt: Date | null;
  lastFailedAt: Date | null;
  parkedAt: Date;
}

const instant = 'timestamp with time zone';

/** `dataSource.getRepository(ParkedEventEntity)` reads what is parked. `synchronize: false`: the migrations alone own the table. */
export const ParkedEventEntity = new EntitySchema<ParkedEventRow>({
  name: 'NestjsKafkaIdempotencyParkedEvent',
  tableName: PARKED_EVENTS,
  synchronize: false,
  columns: {
    id: { type: 'bigint', primary: true, generated: true },
    state: { type: 'text' },
    consumer: { type: 'text', collation: 'C' },
    groupId: { name: 'group_id', type: 'text', collation: 'C' },
    topic: { type: 'text', collation: 'C' },
    partition: { type: 'integer' },
    recordOffset: { name: 'record_offset', type: 'bigint' },
    recordTimestamp: { name: 'record_timestamp', type: instant },
    eventId: { name: 'event_id', type: 'text', collation: 'C', nullable: true },
    recordKey: { name: 'record_key', type: 'bytea', nullable: true },
    recordValue: { name: 'record_value', type: 'bytea', nullable: true },
    headerNames: { name: 'header_names', type: 'text', array: true },
    headerValues: { name: 'header_values', type: 'bytea', array: true },
    holdKey: { name: 'hold_key', type: 'bytea', nullable: true },
    reason: { type: 'text' },
    errorCode: { name: 'error_code', type: 'text', nullable: true },
    errorName: { name: 'error_name', type: 'text', nullable: true },
    errorMessage: { name: 'error_message', type: 'text', nullable: true },
    attempts: { type: 'integer', default: 0 },
    rounds: { type: 'integer', default: 0 },
    replays: { type: 'integer', default: 0 },
    history: { type: 'jsonb', default: [] },
    editedValue: { name: 'edited_value', type: 'bytea', nullable: true },
    version: { type: 'integer', default: 1 },
    dueAt: { name: 'due_at', type: instant, nullable: true },
    firstFailedAt: { name: 'first_failed_at', type: instant, nullable: true },
    lastFailedAt: { name: 'last_failed_at', type: instant, nullable: true },
    parkedAt: { name: 'parked_at', type: instant, default: () => 'now()' },
  },
});
