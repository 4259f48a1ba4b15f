import { limitedInsert } from '#src/transaction/limited-insert.js';
import type { Orm } from './typeorm-versions.js';

/** Both TypeORMs keep what decorators say in one global; a storage made by the other version lacks methods. */
export function forgetDecorators(): void {
  delete (globalThis as { typeormMetadataArgsStorage?: unknown }).typeormMetadataArgsStorage;
}

export function effectEntity(orm: Orm) {
  @orm.Entity({ name: 'effect' })
  class Effect {
    @orm.PrimaryGeneratedColumn() id!: number;
    @orm.Column('text') name!: string;
  }
  return Effect;
}

export const CLAIM_TABLE = `CREATE TABLE claims (consumer text NOT NULL, event_id text NOT NULL, PRIMARY KEY (consumer, event_id))`;
export const claimWithin = (lockTimeoutMs: number) =>
  limitedInsert({ into: 'claims (consumer, event_id)', row: '$1, $2', lockTimeoutMs });
export const CLAIM = claimWithin(2000);
