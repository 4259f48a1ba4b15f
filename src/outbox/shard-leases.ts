import { randomUUID } from 'node:crypto';
import { SHARDS } from '../kafka/key-shard.js';
import type { OutboxTables } from './outbox-tables.js';

const CLAIM = `WITH free AS (SELECT shard FROM outbox_shards WHERE lease_until IS NULL OR lease_until < now() ORDER BY shard FOR UPDATE SKIP LOCKED),
taken AS (UPDATE outbox_shards s SET owner = $1, token = s.token + 1, lease_until = now() + $2 * interval '1 millisecond' FROM free WHERE s.shard = free.shard
  RETURNING s.shard, s.token::text AS token, s.low_water_id::text AS low)
SELECT shard, token, low FROM taken`;

const RENEW = `WITH ours AS (UPDATE outbox_shards s SET lease_until = now() + $2 * interval '1 millisecond', low_water_id = h.low
  FROM unnest($3::smallint[], $4::bigint[], $5::bigint[]) AS h (shard, token, low) WHERE s.shard = h.shard AND s.owner = $1 AND s.token = h.token RETURNING s.shard)
SELECT shard FROM ours`;

const RELEASE = `WITH gone AS (UPDATE outbox_shards SET owner = NULL, lease_until = NULL WHERE owner = $1 RETURNING 1) SELECT count(*)::integer AS released FROM gone`;

/** A lease is taken for over this much of it too soon, so that nothing is begun that its end would meet. */
const MARGIN = 0.25;

interface Lease {
  readonly token: string;
  readonly untilMs: number;
}

export interface ShardLeasesParts {
  readonly tables: OutboxTables;
  readonly leaseMs: number;
  /** Below which id a new owner need not look. */
  readonly lowWater: (shard: number) => bigint;
  readonly lost: (shards: readonly number[]) => void;
}

/**
 * Which shards are ours:
 * - one owner each, for the length of a lease by the database's clock; measured here from before it was asked for, by a clock that is never set;
 * - each owner gets a token of its own, and what it writes about a shard's rows holds only under that token;
 * - who dies loses them when the lease ends, who ends in order gives them back.
 */
export class ShardLeases {
  readonly owner = randomUUID();
  readonly #held = new Map<number, Lease>();
  #timer: NodeJS.Timeout | undefined;

  constructor(private readonly parts: ShardLeasesParts) {}

  get isWhole(): boolean {
    return this.#held.size === SHARDS;
  }

  /** Those that can be worked on now, in order. */
  get shards(): number[] {
    return [...this.#held.keys()].filter((shard) => this.holds(shard)).toSorted((a, b) => a - b);
  }

  holds(shard: number): boolean {
    const lease = this.#held.get(shard);
    return lease !== undefined && performance.now() < lease.untilMs - this.parts.leaseMs * MARGIN;
  }

  /** By shard; null: not ours. */
  get tokens(): (string | null)[] {
    return Array.from({ length: SHARDS }, (_, shard) => this.#held.get(shard)?.token ?? null);
  }

  /** Takes what nobody holds, and tells where each begins. */
  async claim(): Promise<{ shard: number; low: bigint }[]> {
    const { tables, leaseMs } = this.parts;
    const untilMs = performance.now() + leaseMs;
    const taken = await tables.run<{ shard: number; token: string; low: string }>(CLAIM, [this.owner, leaseMs]);
    for (const { shard, token } of taken) this.#held.set(shard, { token, untilMs });
    if (taken.length > 0) this.#timer ??= setInterval(() => void this.renew().catch(() => {}), leaseMs / 3); // one that fails is tried again; in the end the lease ends
    return taken.map(({ shard, low }) => ({ shard, low: BigInt(low) }));
  }

  async renew(): Promise<void> {
    const { tables, leaseMs, lowWater } = this.parts;
    const before = [...this.#held];
    if (before.length === 0) return;
    const untilMs = performance.now() + leaseMs;
    const columns = [
      before.map(([shard]) => shard),
      before.map(([, { token }]) => token),
      before.map(([shard]) => lowWater(shard).toString()),
    ];
    const rows = await tables.run<{ shard: number }>(RENEW, [this.owner, leaseMs, ...columns]);
    const ours = new Set(rows.map(({ shard }) => shard));
    const lost: number[] = [];
    for (const [shard, lease] of before) {
      if (this.#held.get(shard) !== lease) continue; // taken anew meanwhile
      if (ours.has(shard)) this.#held.set(shard, { ...lease, untilMs });
      else if (this.#held.delete(shard)) lost.push(shard);
    }
    if (lost.length > 0) this.parts.lost(lost);
  }

  /** Rejects as the database does: they end by themselves then. */
  async release(): Promise<void> {
    clearInterval(this.#timer);
    this.#timer = undefined;
    if (this.#held.size === 0) return;
    await this.renew(); // for the low-water ids
    this.#held.clear();
    await this.parts.tables.run(RELEASE, [this.owner]);
  }
}
