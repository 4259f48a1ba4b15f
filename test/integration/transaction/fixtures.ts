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
export const CLAIM = `INSERT INTO claims (consumer, event_id) VALUES ($1, $2) ON CONFLICT DO NOTHING RETURNING event_id`;
