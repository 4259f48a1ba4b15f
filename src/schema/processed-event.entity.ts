import { EntitySchema } from 'typeorm';
import { PROCESSED_EVENTS } from './processed-events.js';

/** A row of `processed_events`, for reading. Claims are never written through it. */
export interface ProcessedEvent {
  processedAt: Date;
  recordOffset: string;
  fingerprint: string;
  partition: number;
  consumer: string;
  eventId: string;
  topic: string;
}

/**
 * `dataSource.getRepository(ProcessedEventEntity)` reads the claims. `synchronize: false`: the migrations alone own the table, and neither
 * `synchronize` nor `migration:generate` touches it (they would drop its index, whose method they do not know).
 */
export const ProcessedEventEntity = new EntitySchema<ProcessedEvent>({
  name: 'NestjsKafkaIdempotencyProcessedEvent',
  tableName: PROCESSED_EVENTS,
  synchronize: false,
  columns: {
    processedAt: { name: 'processed_at', type: 'timestamp with time zone', default: () => 'now()' },
    recordOffset: { name: 'record_offset', type: 'bigint' },
    fingerprint: { name: 'fingerprint', type: 'bigint' },
    partition: { name: 'partition', type: 'integer' },
    consumer: { name: 'consumer', type: 'text', collation: 'C', primary: true },
    eventId: { name: 'event_id', type: 'text', collation: 'C', primary: true },
    topic: { name: 'topic', type: 'text', collation: 'C' },
  },
});
