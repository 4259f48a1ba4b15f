import { setTimeout as sleep } from 'node:timers/promises';
import type { ParkingRoom } from '#src/parking/parking-room.js';
import type { ParkedDelivery, PartitionParking, StoredRecord } from '#src/shared/parking.js';
import { until } from 'nestjs-kafka-idempotency/testing';
import { CONSUMER, ConsumerDouble, failing, gated, record, request, TOPIC, type ParkingKit } from './kit.js';

export interface SimulationOptions {
  readonly seed: number;
  readonly events: number;
  /** When a new owner reads what is parked: after the join, as it has to; before it, while the other one still owns; or not at all. */
  readonly load: 'after the join' | 'before the join' | 'never';
}

export interface SimulationResult {
  readonly lost: number;
  readonly doubled: number;
  readonly outOfOrder: number;
  readonly moves: number;
  readonly parked: number;
  readonly held: number;
  /** Records an owner took that no longer was one. */
  readonly zombieSteps: number;
}

const KEYS = 6;

/**
 * One partition whose owner changes all the time, old owners that go on for a while without a say over the offset, handlers that fail now and then,
 * and two workers that bring parked events back: against a real PostgreSQL, with the claim in the same transaction as the effect.
 */
export class Simulation {
  readonly #random: () => number;
  readonly #failuresLeft = new Map<string, number>();
  readonly #double: ConsumerDouble;
  readonly #counts = { moves: 0, parked: 0, held: 0, zombieSteps: 0 };
  #committed = 0;
  #owner: Owner | undefined;

  constructor(
    private readonly kit: ParkingKit,
    private readonly options: SimulationOptions,
  ) {
    this.#random = seeded(options.seed);
    for (let offset = 0; offset < options.events; offset += 1)
      if (this.#random() < 0.2) this.#failuresLeft.set(`e${offset}`, 1 + Math.floor(this.#random() * 2));
    this.#double = new ConsumerDouble(kit.dataSource, (parked) => this.#mayFail(parked));
    const retry = { ...redelivery, attempts: 1 };
    this.#double.consumers.set(CONSUMER, { timeoutMs: 5000, retry, redelivery });
  }

  async run(): Promise<SimulationResult> {
    const workers = [this.kit.room(), this.kit.room()];
    for (const worker of workers) worker.start(this.#double);
    const owners: Promise<void>[] = [];
    while (this.#committed < this.options.events) {
      owners.push((await this.#move()).done);
      await sleep(30 + this.#random() * 120);
    }
    await Promise.all(owners);
    await until(async () => (await this.kit.rows()).length === 0, { what: 'nothing parked', timeoutMs: 30_000 });
    await Promise.all(workers.map((worker) => worker.stop()));
    return this.#result();
  }

  /** A new member gets the partition. From the join on, nobody else's offsets count. */
  async #move(): Promise<Owner> {
    const { load } = this.options;
    const room = this.kit.room(load === 'never' ? { groupId: `nobody-${this.#counts.moves}` } : {});
    const early = load === 'before the join' ? await this.#open(room) : undefined;
    if (early !== undefined) await sleep(20 + this.#random() * 40);
    this.#counts.moves += 1;
    this.#owner?.lose(Math.floor(this.#random() * 10));
    const from = this.#committed;
    const owner: Owner = new Owner(from, (offset) => this.#take(offset, owner));
    this.#owner = owner;
    owner.start(early ?? (await this.#open(room)), this.options.events);
    return owner;
  }

  async #open(room: ParkingRoom): Promise<PartitionParking> {
    const [partition] = await room.parking.open([{ topic: TOPIC, partition: 0, from: BigInt(this.#committed) }]);
    return partition!;
  }

  async #take(offset: number, owner: Owner): Promise<void> {
    if (this.#owner !== owner) this.#counts.zombieSteps += 1;
    const taken = eventAt(offset);
    const gate = await owner.parking.gate(gated(taken));
    if (gate === 'held') this.#counts.held += 1;
    if (gate === undefined || gate === 'run') await this.#handle(taken, owner);
    if (this.#owner === owner && (this.#random() < 0.4 || offset + 1 === this.options.events))
      this.#committed = offset + 1;
  }

  /** One attempt, then it is parked. */
  async #handle(taken: StoredRecord, owner: Owner): Promise<void> {
    const removal = { removeWith: () => Promise.resolve('removed' as const) }; // a record from Kafka has no row
    const delivery = { record: taken, consumer: CONSUMER, eventId: `e${taken.offset}`, attempt: 1, removal };
    const report = await this.#double.redeliver(delivery);
    if (report.outcome !== 'failed') return;
    this.#counts.parked += 1;
    await owner.parking.park(request(taken, { error: report.error, redelivery }));
  }

  async #mayFail({ eventId }: ParkedDelivery) {
    await sleep(this.#random() * 4);
    const left = this.#failuresLeft.get(eventId!) ?? 0;
    if (left === 0) return 'run' as const;
    this.#failuresLeft.set(eventId!, left - 1);
    return failing('transient');
  }

  async #result(): Promise<SimulationResult> {
    const applied = (await this.kit.effects()).map((id) => Number(id.slice(1)));
    const highest = new Map<number, number>();
    let outOfOrder = 0;
    for (const offset of applied) {
      const key = offset % KEYS;
      if (offset < (highest.get(key) ?? -1)) outOfOrder += 1;
      else highest.set(key, offset);
    }
    const distinct = new Set(applied).size;
    return {
      lost: this.options.events - distinct,
      doubled: applied.length - distinct,
      outOfOrder,
      ...this.#counts,
    };
  }
}

const redelivery = { rounds: 20, delayMs: 60, factor: 1, maxDelayMs: 60, jitter: 'full' } as const;

const eventAt = (offset: number) => record(offset, { key: Buffer.from(`key ${offset % KEYS}`) });

/** Takes the records of the partition one after the other; after it has lost the partition, some more. */
class Owner {
  parking!: PartitionParking;
  done: Promise<void> = Promise.resolve();
  #left = Infinity;

  constructor(
    private readonly from: number,
    private readonly take: (offset: number) => Promise<void>,
  ) {}

  start(parking: PartitionParking, end: number): void {
    this.parking = parking;
    this.done = this.#run(end);
  }

  lose(more: number): void {
    this.#left = more;
  }

  async #run(end: number): Promise<void> {
    for (let offset = this.from; offset < end && this.#left > 0; offset += 1, this.#left -= 1) await this.take(offset);
  }
}

/** mulberry32. */
function seeded(seed: number): () => number {
  let state = seed;
  return () => {
    state = (state + 0x6d2b79f5) | 0;
    let mixed = Math.imul(state ^ (state >>> 15), state | 1);
    mixed ^= mixed + Math.imul(mixed ^ (mixed >>> 7), mixed | 61);
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 4294967296;
  };
}
