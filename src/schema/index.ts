import type { EntitySchema } from 'typeorm';
import { ParkedEventEntity, type ParkedEventRow } from './parked-event.entity.js';
import { ProcessedEventEntity, type ProcessedEvent } from './processed-event.entity.js';

export { idempotencyMigrations, type MigrationOptions } from './migrations.js';
export { ParkedEventEntity, type ParkedEventRow } from './parked-event.entity.js';
export { ProcessedEventEntity, type ProcessedEvent } from './processed-event.entity.js';

/** The entities of this package, for `entities: [...idempotencyEntities, ...yours]`: to read our tables through repositories. The module itself does not need them. */
export const idempotencyEntities: (EntitySchema<ProcessedEvent> | EntitySchema<ParkedEventRow>)[] = [
  ProcessedEventEntity,
  ParkedEventEntity,
];
