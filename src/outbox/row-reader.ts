import { serverRestarted } from '../transaction/transaction-errors.js';
import type { Blocks } from './blocks.js';
import { LateCommits } from './late-commits.js';
import type { OutboxRow } from './outbox-row.js';
import type { OutboxRows, ReadAnswer } from './outbox-rows.js';
import { lower, Scan, type Positions } from './scan.js';

/** What nothing else would find: rows of a transaction that was stopped between its id and its first write, rows a person set back. */
const FROM_START_MS = 10_000;
/** So many times as long as such a look took, the next one waits: under another session's old snapshot it walks over every row that was deleted since. */
const FROM_START_REST = 20;
/** It waits while a long backlog is read, too; but never longer than this since the one before began. */
const FROM_START_MOST_MS = 120_000;

export interface RowReaderParts {
  readonly rows: OutboxRows;
  readonly blocks: Blocks;
  /** Ours. */
  readonly shards: () => readonly number[];
  /** Resolves when nothing is being deleted: what is looked back to must not be about to go. */
  readonly deleted: () => Promise<void>;
  /** Resolves when everything acknowledged before the call is on disk. Rejects if the server has begun anew since the read. */
  readonly barrier: (read: { readonly run: string }) => Promise<void>;
  readonly batch: number;
  readonly pollMs: number;
}

/** What was read from there; on disk, so that it may be sent. */
export interface ReadRows {
  readonly rows: readonly OutboxRow[];
  readonly from: Positions;
}

/** Reads the rows that are to be sent next, and knows where to look for them. */
export class RowReader {
  readonly #scan = new Scan();
  #late = new LateCommits();
  /** Read, and not yet deleted or given up. */
  readonly #inHand = new Set<bigint>();
  #perShard = 1;
  #sweepAtMs = 0;
  #startAtMs = 0;
  #startedAtMs = 0;
  #isFromStart = false;
  /** Of the server, at the last read. */
  #run: string | undefined;

  constructor(private readonly parts: RowReaderParts) {}

  /** A shard has come: nothing above that id has been looked at. */
  enter(shard: number, low: bigint): void {
    this.#scan.enter(shard, low);
  }

  /** All that was to be found has been: what comes is looked for from near the end. */
  toNear(): void {
    this.#scan.toNear(performance.now());
  }

  /** The next read looks at every row. */
  lookAgain(): void {
    this.#startAtMs = 0;
  }

  /** Of what was read, something was not sent: everything is looked for again. */
  startOver(): void {
    this.#inHand.clear();
    this.#scan.restart();
  }

  /** These have been deleted, or given up. */
  letGo(rows: readonly OutboxRow[]): void {
    for (const { id } of rows) this.#inHand.delete(id);
  }

  get isSweepDue(): boolean {
    return performance.now() >= this.#sweepAtMs;
  }

  /** When to look again, if nothing wakes us before. */
  get nextMs(): number {
    return Math.min(this.#sweepAtMs, this.parts.blocks.nextMs);
  }

  /** Where much is left: a read that gave little would only be followed by another such. Not beside a look back, which must not meet rows that are being sent. */
  mayReadAhead({ rows }: ReadRows): boolean {
    return rows.length >= this.parts.batch / 2 && !this.#isLookBackDue;
  }

  /** What a new owner need not look at: nothing blocked lies below. */
  lowWater(shard: number): bigint {
    const low = this.#scan.lowWater(shard);
    return lower(low, this.parts.blocks.floor?.[shard] ?? low);
  }

  /** Behind the cursors too, if it is time for that. Undefined: no shard is ours. */
  async next(): Promise<ReadRows | undefined> {
    if (this.#isLookBackDue) await this.#lookBack();
    return this.readOn();
  }

  /** From the cursors. Undefined: no shard is ours. */
  async readOn(): Promise<ReadRows | undefined> {
    const shards = this.parts.shards();
    if (shards.length === 0) return undefined;
    const { cursors } = this.#scan;
    const { rows, run, lookedBackTo } = await this.#read(shards, cursors);
    // What is blocked now is looked for from there.
    const from = lookedBackTo === undefined ? cursors : cursors.map((cursor) => lower(cursor, lookedBackTo));
    if (rows.length > 0) await this.parts.barrier({ run }); // begun after the read: what is sent then, no crash takes back
    return { rows, from };
  }

  get #isLookBackDue(): boolean {
    const nowMs = performance.now();
    return nowMs >= this.#startAtMs || nowMs >= this.nextMs;
  }

  /** To rows that are behind the cursors: their time has come, or their transaction was long. */
  async #lookBack(): Promise<void> {
    const { blocks, rows, pollMs } = this.parts;
    const nowMs = performance.now();
    await this.parts.deleted();
    const due = blocks.expire(nowMs);
    if (due !== undefined) this.#scan.backTo(due);
    if (!this.isSweepDue && nowMs < this.#startAtMs) return;
    const snapshot = await rows.snapshot();
    this.#sweepAtMs = nowMs + pollMs;
    this.#scan.mark(nowMs, snapshot);
    if (blocks.floor !== undefined) this.#scan.backTo(blocks.floor);
    if (nowMs < this.#startAtMs) return;
    this.#startAtMs = nowMs + FROM_START_MS;
    this.#startedAtMs = nowMs;
    this.#scan.toStart();
    this.#isFromStart = true;
  }

  async #read(shards: readonly number[], cursors: Positions): Promise<ReadAnswer> {
    const { batch, blocks } = this.parts;
    const least = Math.ceil(batch / shards.length);
    this.#perShard = Math.min(batch, Math.max(least, this.#perShard));
    const { topics, keys } = blocks;
    const { open, unlisted } = this.#late;
    const inHand = [...this.#inHand];
    const request = { shards, cursors, topics, keys, perShard: this.#perShard, batch, open, unlisted, inHand };
    const sinceMs = performance.now();
    const answer = await this.parts.rows.read(request);
    this.#expect(answer.run);
    const { rows, moment, lookedBackTo, isFull } = answer;
    if (this.#isFromStart) this.#restFromStart(FROM_START_REST * (performance.now() - sinceMs));
    else if (isFull) this.#restFromStart(FROM_START_MS);
    this.#isFromStart = false;
    const ids = rows.map(({ id }) => id);
    this.#late.saw(moment, ids);
    for (const id of ids) this.#inHand.add(id);
    this.#scan.passed(rows);
    if (lookedBackTo !== undefined) {
      const seenTo = isFull ? rows.at(-1)!.id : undefined;
      this.#scan.lookedBack(lookedBackTo, shards, seenTo);
    }
    this.#perShard = nextPerShard(rows, this.#perShard, batch);
    return answer;
  }

  #restFromStart(ms: number): void {
    if (this.#startAtMs === 0) return; // asked for again meanwhile
    const latestMs = this.#startedAtMs + FROM_START_MOST_MS;
    this.#startAtMs = Math.max(this.#startAtMs, Math.min(latestMs, performance.now() + ms));
  }

  /** A server that has begun anew may have lost what was read, and give its ids and those of transactions again. */
  #expect(run: string): void {
    const before = this.#run;
    this.#run = run;
    if (before === undefined || before === run) return;
    this.#late = new LateCommits();
    this.parts.blocks.clear();
    throw serverRestarted();
  }
}

/** How many rows of a shard to ask for: where few shards have any, those are to fill the batch. */
function nextPerShard(rows: readonly OutboxRow[], perShard: number, batch: number): number {
  const counts = new Map<number, number>();
  for (const { shard } of rows) counts.set(shard, (counts.get(shard) ?? 0) + 1);
  const isShort = rows.length < batch && Math.max(0, ...counts.values()) >= perShard;
  if (isShort) return Math.ceil((perShard * batch) / rows.length);
  return counts.size * perShard > 2 * batch ? Math.ceil(perShard / 2) : perShard;
}
