import type { EmitEvent } from '../shared/events.js';
import type { OutboxTables } from './outbox-tables.js';

const AT_ONCE = 1000;

const PRUNE = `WITH gone AS (DELETE FROM outbox_dedupe WHERE (topic, dedupe_key) IN (SELECT topic, dedupe_key FROM outbox_dedupe
    WHERE created_at < now() - $1 * interval '1 millisecond' LIMIT ${AT_ONCE} FOR UPDATE SKIP LOCKED) RETURNING 1)
SELECT count(*)::integer AS count FROM gone`;

/** The dedupeKeys that were published. Kept for their retention, deleted in small pieces. */
export class DedupeKeys {
  constructor(
    private readonly tables: OutboxTables,
    private readonly retentionMs: number,
    private readonly emit: EmitEvent,
  ) {}

  async prune(signal: AbortSignal): Promise<void> {
    let pruned = 0;
    for (let count = AT_ONCE; count === AT_ONCE && !signal.aborted; pruned += count) {
      const [row] = await this.tables.run<{ count: number }>(PRUNE, [this.retentionMs]);
      count = row!.count;
    }
    if (pruned > 0) this.emit({ name: 'pruned', table: 'outbox_dedupe', rows: pruned });
  }
}
