import type { CheckedProducer } from '../kafka/checked-producer.js';
import type { ClusterReader } from '../kafka/cluster-reader.js';
import { SEND_BYTES } from '../kafka/send-parts.js';
import { backoffMs, type Backoff } from '../shared/backoff.js';
import { IdempotencyError } from '../shared/errors.js';
import type { EmitEvent } from '../shared/events.js';
import { noteOf } from '../shared/failed-attempt.js';
import { Blocks } from './blocks.js';
import type { DedupeKeys } from './dedupe-keys.js';
import { DeliveryRun, type FailedRow } from './delivery-run.js';
import type { OutboxRow } from './outbox-row.js';
import { OutboxRows, type Claimed, type ToldFailure } from './outbox-rows.js';
import type { OutboxTables } from './outbox-tables.js';
import { RowReader, type ReadRows, type RowReaderParts } from './row-reader.js';
import type { Positions } from './scan.js';
import { partsOf, planOf } from './send-plan.js';
import { ShardLeases } from './shard-leases.js';

const TIDY_MS = 600_000;
const AWAY: Backoff = { delayMs: 200, factor: 2, maxDelayMs: 10_000, jitter: 'full' };

export interface RelayParts {
  readonly tables: OutboxTables;
  readonly producer: CheckedProducer;
  readonly cluster: Pick<ClusterReader, 'existing'>;
  readonly barrier: RowReaderParts['barrier'];
  readonly dedupeKeys: DedupeKeys;
  readonly emit: EmitEvent;
  /** For what an operator should see. Never a payload. */
  readonly log: (message: string) => void;
  readonly batch: number;
  readonly pollMs: number;
  readonly leaseMs: number;
  /** Until a row is parked. */
  readonly attempts: number;
  /** Between attempts of a row. */
  readonly backoff: Backoff;
}

/**
 * Sends the rows of the outbox:
 * - each at least once, always with the same id and bytes; a row goes only when Kafka has acknowledged it;
 * - rows of a key in the order of their ids, one relay at a time: by a lease per shard, and a token for whatever is written about a row;
 * - nothing that a crash of the database could still take back;
 * - a row Kafka does not take keeps back its key, then is parked alone; an outage parks nothing.
 */
export class Relay {
  readonly #leases: ShardLeases;
  readonly #rows: OutboxRows;
  readonly #blocks = new Blocks();
  readonly #reader: RowReader;
  /** Topics that have taken a message: those that do not exist are not tried. */
  readonly #known = new Set<string>();
  readonly #stopping = new AbortController();
  #loop: Promise<void> | undefined;
  #last: Promise<unknown> = Promise.resolve();
  /** The delete of the last batch: it runs while the next one is read and sent. */
  #deleting: Promise<void> = Promise.resolve();
  #isWoken = false;
  #endPause: (() => void) | undefined;
  #failures = 0;
  #tidyAtMs = 0;

  constructor(private readonly parts: RelayParts) {
    const { tables, leaseMs, barrier, batch, pollMs } = parts;
    this.#rows = new OutboxRows(tables);
    this.#reader = new RowReader({
      rows: this.#rows,
      blocks: this.#blocks,
      shards: () => this.#leases.shards,
      deleted: () => this.#deleting,
      barrier,
      batch,
      pollMs,
    });
    this.#leases = new ShardLeases({
      tables,
      leaseMs,
      lowWater: (shard) => this.#reader.lowWater(shard),
      lost: (shards) => this.#tellLost(shards),
    });
  }

  start(): void {
    this.#loop ??= this.#work();
  }

  /** Something was committed. */
  wake(): void {
    this.#isWoken = true;
    this.#endPause?.();
  }

  /** Ends what is being sent, and gives the shards back. */
  async stop(): Promise<void> {
    this.#stopping.abort();
    this.wake();
    await this.#loop;
    await this.#last;
    await this.#leases.release().catch(() => undefined); // they end by themselves
  }

  /** Sends what is there now, as far as nobody else holds its shard, and gives the number of messages sent. */
  runOnce(): Promise<number> {
    return this.#serially(async () => {
      await this.#takeShards();
      this.#reader.lookAgain();
      const sent = await this.#pass();
      if (this.#loop === undefined) await this.#leases.release();
      return sent;
    });
  }

  /** The next pass looks at every row. */
  lookAgain(): void {
    this.#reader.lookAgain();
    this.wake();
  }

  async #work(): Promise<void> {
    while (!this.#stopping.signal.aborted) {
      this.#isWoken = false;
      try {
        await this.#serially(() => this.#turn());
        this.#failures = 0;
      } catch (error) {
        this.#tell(error);
        this.#reader.lookAgain(); // what was read and not sent
        this.#isWoken = false;
        await this.#pause(backoffMs(AWAY, (this.#failures += 1)));
        continue;
      }
      await this.#pause(this.#untilNext());
    }
  }

  #serially<T>(work: () => Promise<T>): Promise<T> {
    const done = this.#last.then(work);
    this.#last = done.catch(() => undefined); // told to whoever asked
    return done;
  }

  async #turn(): Promise<void> {
    this.#reader.toNear();
    if (this.#reader.isSweepDue && !this.#leases.isWhole) await this.#takeShards();
    await this.#pass();
    if (performance.now() >= this.#tidyAtMs && this.#leases.holds(0)) {
      this.#tidyAtMs = performance.now() + TIDY_MS;
      await this.parts.dedupeKeys.prune(this.#stopping.signal);
    }
  }

  async #takeShards(): Promise<void> {
    for (const { shard, low } of await this.#leases.claim()) this.#reader.enter(shard, low);
  }

  /** Until nothing is left. */
  async #pass(): Promise<number> {
    let sent = 0;
    let ahead: Promise<ReadRows | undefined> | undefined;
    const dropAhead = async (): Promise<void> => {
      await ahead?.catch(() => {}); // its rows are read again, and what kept it from that is met again
      ahead = undefined;
    };
    try {
      while (!this.#stopping.signal.aborted) {
        const read = await (ahead ?? this.#reader.next());
        if (read === undefined) break;
        if (read.rows.length === 0) {
          this.#blocks.settle();
          break;
        }
        ahead = this.#reader.mayReadAhead(read) ? this.#reader.readOn() : undefined;
        ahead?.catch(() => {}); // thrown where it is waited for
        const run = await this.#round(read);
        sent += run.sent.length;
        const isSent = new Set(run.sent);
        this.#reader.letGo(read.rows.filter((row) => !isSent.has(row)));
        if (!run.hasLeftOut) continue;
        await dropAhead(); // it stands behind what was left out
        await this.#deleting;
        this.#reader.startOver();
      }
      await dropAhead();
      await this.#deleting; // nothing is looked at again that is only about to go
      return sent;
    } catch (error) {
      await dropAhead();
      await this.#deleting.catch(() => {}); // what it could not delete is sent again
      this.#deleting = Promise.resolve();
      this.#reader.startOver();
      throw error;
    }
  }

  async #round({ rows, from }: ReadRows): Promise<DeliveryRun> {
    const nowMs = performance.now();
    const { send, waiting } = planOf(rows, (row) => this.#blocks.isBlocked(row));
    for (const row of waiting) this.#blocks.block(row, nowMs + row.waitMs, from);
    const run = new DeliveryRun(this.parts.producer, (row) => this.#leases.holds(row.shard));
    if (send.length === 0) return run;
    const claimed = { owner: this.#leases.owner, tokens: this.#leases.tokens };
    await this.#failMissing(send, run);
    for (const part of partsOf(send, SEND_BYTES)) await run.deliver(part);
    await this.#end(run, claimed, from);
    if (run.away.size > 0 && run.sent.length + run.failed.length === 0) throw run.away.values().next().value;
    return run;
  }

  async #failMissing(rows: readonly OutboxRow[], run: DeliveryRun): Promise<void> {
    const unknown = [...new Set(rows.map(({ topic }) => topic))].filter((topic) => !this.#known.has(topic));
    if (unknown.length === 0) return;
    const existing = await this.parts.cluster.existing(unknown);
    for (const topic of unknown) {
      if (existing.includes(topic)) continue;
      run.fail(
        rows.filter((row) => row.topic === topic),
        missingTopic(topic),
      );
      run.away.set(topic, missingTopic(topic));
    }
  }

  async #end(run: DeliveryRun, claimed: Claimed, from: Positions): Promise<void> {
    const { sent, failed, away } = run;
    for (const { topic } of sent) this.#known.add(topic);
    for (const topic of [...away.keys(), ...failed.map(({ row }) => row.topic)]) this.#known.delete(topic);
    for (const [topic, error] of away) {
      if (IdempotencyError.is(error, 'TOPIC_MISSING')) continue; // its rows have failed: it waits as long as they do
      this.#blocks.blockTopic(topic, performance.now() + backoffMs({ ...AWAY, jitter: 'none' }, 5), from);
    }
    await this.#deleting;
    if (sent.length > 0) {
      this.parts.emit({ name: 'relayed', messages: sent.length });
      this.#deleting = this.#remove(sent, claimed);
      this.#deleting.catch(() => {}); // thrown where it is waited for
    }
    if (failed.length > 0) await this.#fail(failed, claimed, from);
  }

  async #remove(sent: readonly OutboxRow[], claimed: Claimed): Promise<void> {
    const removed = await this.#rows.remove(claimed, sent);
    this.#reader.letGo(sent);
    if (removed < sent.length) await this.#leases.renew(); // finds out which are lost
  }

  async #fail(failed: readonly FailedRow[], claimed: Claimed, from: Positions): Promise<void> {
    const told = failed.map((failure) => this.#told(failure));
    const written = await this.#rows.fail(claimed, told);
    for (const failure of told) {
      const { row, error, parks } = failure;
      if (!written.has(row.id)) continue; // somebody else's by now
      if (parks) this.#tellParked(failure);
      else if (IdempotencyError.is(error, 'TOPIC_MISSING'))
        this.#blocks.blockTopic(row.topic, performance.now() + failure.waitMs, from);
      else this.#blocks.block(row, performance.now() + failure.waitMs, from);
    }
    if (written.size < failed.length) await this.#leases.renew();
  }

  #told(failure: FailedRow): ToldFailure {
    const attempts = failure.row.attempts + 1;
    const { code, message } = noteOf(failure.error, new Date());
    return {
      ...failure,
      code,
      message,
      waitMs: backoffMs(this.parts.backoff, attempts),
      parks: failure.isFinal || attempts >= this.parts.attempts,
    };
  }

  #untilNext(): number {
    return Math.max(0, this.#reader.nextMs - performance.now());
  }

  #tellParked({ row, error, code }: ToldFailure): void {
    const { id, topic, eventId } = row;
    const attempts = row.attempts + 1;
    this.parts.emit({ name: 'unsent', id: id.toString(), topic, eventId, attempts, error });
    this.parts.log(
      `Row ${id} of the outbox (event ${eventId} for ${topic}) was parked after ${attempts} attempts (${code}). Mend what its error_message says, then Outbox.retry()`,
    );
  }

  #tellLost(shards: readonly number[]): void {
    this.#reader.lookAgain();
    this.parts.log(
      `Shards ${shards.join(', ')} of the outbox were taken over by another relay: this process did not renew its leases in time. What it was sending may be sent twice, under the same ids (LEASE_LOST)`,
    );
  }

  /** Once for each time it begins. */
  #tell(error: unknown): void {
    if (this.#failures > 0) return;
    const { code, message } = noteOf(error, new Date());
    this.parts.log(`Nothing of the outbox is sent at the moment (${code}: ${message}); it is tried again`);
  }

  async #pause(ms: number): Promise<void> {
    if (this.#isWoken || this.#stopping.signal.aborted) return;
    await new Promise<void>((resolve) => {
      const timer = setTimeout(resolve, ms);
      this.#endPause = () => {
        clearTimeout(timer);
        resolve();
      };
    });
    this.#endPause = undefined;
  }
}

function missingTopic(topic: string): IdempotencyError {
  return new IdempotencyError(
    'TOPIC_MISSING',
    `The topic ${topic} does not exist, or may not be seen with these credentials. Make it: topics are never made by this package`,
    { retryable: true, facts: { topic } },
  );
}
