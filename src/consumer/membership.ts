import { Logger } from '@nestjs/common';
import type { ConsumerConfig } from 'kafkajs';
import { IdempotencyError } from '../shared/errors.js';
import type { EmitEvent } from '../shared/events.js';
import type { Parking } from '../shared/parking.js';
import type { ProducerSettings } from '../kafka/checked-producer.js';
import type { DecodingSettings } from '../kafka/codecs.js';
import type { ClusterReader } from '../kafka/cluster-reader.js';
import {
  GroupClient,
  type FetchedBatch,
  type FilteredBatch,
  type GroupListener,
  type UndecodableBatch,
} from '../kafka/group-client.js';
import type { NewKafka } from '../kafka/kafka-client.js';
import { partitionKey, type TopicPartition } from '../kafka/positions.js';
import { within } from '../shared/within.js';
import { inRange, RESET, startOf } from './anchor.js';
import { AnchorReader } from './anchor-reader.js';
import { AssignedLanes } from './assigned-lanes.js';
import { AssignedTransactions } from './assigned-transactions.js';
import type { DuplicateProbe } from './duplicate-probe.js';
import { FetchFlow } from './fetch-flow.js';
import type { HandledBefore } from './missing-offsets.js';
import { GapNotice, outOfRange } from './gap-notice.js';
import { HeartbeatWatch } from './heartbeat-watch.js';
import { Lane, type LaneHost } from './lane.js';
import { OffsetCommitter, type Barrier } from './offset-committer.js';
import type { Outage } from './outage.js';
import type { OutageNotice } from './outage-notice.js';
import type { GroupDelivery } from './group-delivery.js';
import type { RecordDelivery } from './record-delivery.js';
import { stalledDetail, type Readable, type StalledRead, type StalledReads } from './stalled-reads.js';
import type { Strand } from './strand.js';

/** For what was killed to say how it ended: a little more than a delivery is waited for. */
const KILLED_MS = 1100;
const LEAVE_MS = 500;

export interface MembershipParts {
  readonly newKafka: NewKafka;
  readonly config: ConsumerConfig & { readonly sessionTimeout: number; readonly rebalanceTimeout: number };
  readonly groupId: string;
  readonly fromBeginning: boolean;
  readonly buffer: { readonly records: number; readonly bytes: number };
  /** Of one partition, at once. */
  readonly keys: number;
  readonly batchBytes: number;
  readonly offsetOutOfRange: 'earliest' | 'fail';
  readonly deadLetterTopic: string | undefined;
  readonly codecs: DecodingSettings['codecs'];
  readonly commitIntervalMs: number;
  readonly reader: ClusterReader;
  readonly parking: Parking;
  readonly delivery: RecordDelivery;
  readonly groups: GroupDelivery;
  readonly probe: DuplicateProbe;
  readonly outage: Outage;
  readonly brokers: OutageNotice;
  readonly reads: OutageNotice;
  readonly stalledReads: StalledReads;
  readonly barrier: Barrier;
  readonly handledBefore: HandledBefore;
  readonly emit: EmitEvent;
  readonly isPaused: (topic: string) => boolean;
  /** Of transactional producers. */
  readonly producer: ProducerSettings;
  readonly isExactlyOnce: (topic: string) => boolean;
  /** Lanes of earlier assignments that may still be working, by partition. */
  readonly endings: Map<string, Promise<void>>;
}

/**
 * One membership of the group, from join to end. GROUP_JOIN alone says which partitions are ours, and each is anchored before anything of it runs:
 * - at once in the join: lanes that are not ours die, and fetching of all assigned partitions is paused;
 * - then the committed offsets are read, each lane is set to where it has to go on, and every partition is sought to it and resumed, unless a
 *   newer join came meanwhile;
 * - what is parked of a partition is read after the join too, never before: until then its last owner may have parked more.
 */
export class Membership implements GroupListener, LaneHost {
  /** Resolves with the error when the Kafka client has crashed. */
  readonly crash: Promise<Error>;
  readonly #logger = new Logger('IdempotentKafkaServer');
  readonly #client: GroupClient;
  readonly #committer: OffsetCommitter;
  readonly #flow: FetchFlow;
  readonly #gaps: GapNotice;
  readonly #assignedLanes: AssignedLanes;
  readonly #transactions: AssignedTransactions;
  readonly #timer: NodeJS.Timeout;
  #tellCrash: (error: Error) => void = () => {};
  #epoch = 0;
  #memberId: string | undefined;
  #assigned: readonly TopicPartition[] = [];
  /** Lanes from before the join may go on if the group stands where they do. */
  #mayKeepLanes = false;
  #anchored = false;
  #ending = false;
  #ended: Promise<void> | undefined;
  readonly #heartbeats: HeartbeatWatch;
  readonly #anchors: AnchorReader;

  constructor(
    private readonly parts: MembershipParts,
    readonly topics: readonly string[],
  ) {
    this.crash = new Promise((resolve) => (this.#tellCrash = resolve));
    this.#client = new GroupClient(parts.newKafka(), parts.config, this, parts);
    this.#transactions = new AssignedTransactions(parts);
    const transactions = this.#transactions;
    this.#assignedLanes = new AssignedLanes({ ...parts, transactions }, this);
    const lanes = () => this.lanes.filter(({ kafka }) => kafka === undefined);
    this.#committer = new OffsetCommitter(this.#client, lanes, parts.barrier, parts.emit);
    this.#flow = new FetchFlow({
      ...parts,
      client: this.#client,
      lanes: () => this.lanes,
      lostPosition: (lane) => this.#lostPosition(lane),
    });
    this.#gaps = new GapNotice(parts.groupId, parts.emit);
    this.#anchors = new AnchorReader({ ...parts, transactions });
    this.#heartbeats = new HeartbeatWatch(parts.config, performance.now());
    this.#timer = setInterval(() => this.#tick(), parts.commitIntervalMs);
  }

  get consumer() {
    return this.#client.consumer;
  }
  get lanes(): readonly Lane[] {
    return this.#assignedLanes.all;
  }
  get isAnchored(): boolean {
    return this.#anchored;
  }
  /** Why the partitions are not anchored yet. */
  get trouble(): { readonly since: Date; readonly error: unknown } | undefined {
    return this.#anchors.trouble;
  }
  /** What cannot be read because somebody left a transaction open. */
  get stalledReads(): readonly StalledRead[] {
    return this.parts.stalledReads.stalled(performance.now());
  }
  get isStale(): boolean {
    return this.#heartbeats.isStale(performance.now());
  }

  /** Joins and begins to consume. Rejects if the brokers cannot be reached. */
  start(): Promise<void> {
    return this.#client.run(this.topics);
  }

  /** Lets deliveries end until the deadline, commits, leaves the group. Resolves also if some of it did not come to its end in time. */
  end(deadlineMs: number): Promise<void> {
    return (this.#ended ??= this.#end(deadlineMs));
  }

  async #end(deadlineMs: number): Promise<void> {
    const endsAt = performance.now() + deadlineMs;
    this.#ending = true;
    clearInterval(this.#timer);
    this.#client.pauseTopics(this.topics);
    const lanes = this.lanes;
    lanes.forEach((lane) => lane.finish());
    const atRest = Promise.all(lanes.map((lane) => lane.atRest()));
    const deadline = new IdempotencyError(
      'SHUTDOWN_DEADLINE',
      `The handler did not end within the ${deadlineMs} ms that draining may take (shutdown.deadline), so its transaction is rolled back; the record is delivered again`,
      { retryable: true },
    );
    if (!(await within(atRest, deadlineMs))) {
      for (const lane of lanes) lane.kill(deadline);
      await within(atRest, KILLED_MS);
    }
    const left = Math.max(endsAt - performance.now(), LEAVE_MS);
    await within(
      Promise.all([this.#committer.flush(), ...lanes.flatMap((lane) => [lane.flush(), lane.unmark()])]),
      left / 2,
    );
    await within(
      this.#client.leave().catch((error: unknown) => this.#logger.warn(`Leaving the group failed: ${String(error)}`)),
      left / 2,
    );
    this.#dropLanes(this.lanes, deadline); // all there are now: an anchor under way may have opened some
    this.#transactions.keepOnly([]);
  }

  // --- what the group client tells ---

  joined({ memberId, partitions }: { memberId: string; partitions: readonly TopicPartition[] }): void {
    const epoch = (this.#epoch += 1);
    const isSameMember = memberId === this.#memberId;
    this.#memberId = memberId;
    this.#assigned = partitions;
    this.#mayKeepLanes &&= isSameMember; // not if a join before, whose anchor never came, was another member's
    this.#anchored = false;
    this.#heartbeats.joined(performance.now());
    this.parts.brokers.end();
    this.parts.stalledReads.keepOnly(partitions);
    // Until the anchor, lanes of an earlier generation are still there, and kafkajs would commit theirs under the new one. While ending no anchor comes
    // any more, and what ends now is still ours to commit if nobody else can have had it.
    if (this.#ending && isSameMember) this.#committer.open();
    else this.#committer.block();
    const assigned = new Set(partitions.map(partitionKey));
    const lost = this.lanes.filter((lane) => !assigned.has(partitionKey(lane)));
    this.#dropLanes(
      lost,
      new IdempotencyError('PARTITION_LOST', 'The group gave this partition to another member', { retryable: true }),
    );
    this.#transactions.keepOnly(partitions);
    for (const lane of this.lanes) lane.hold();
    if (partitions.length > 0) this.#client.pause(partitions);
    void this.#anchor(epoch);
  }

  rebalancing(): void {
    this.#heartbeats.rebalancing();
    this.#committer.commitNow();
    for (const lane of this.lanes) void lane.unmark(); // or the next owner would think that we died
  }

  fetched(batch: FetchedBatch): boolean {
    const lane = this.#assignedLanes.of(batch);
    return lane !== undefined && this.#anchored && this.#flow.take(batch, lane);
  }

  filtered(batch: FilteredBatch): void {
    const lane = this.#assignedLanes.of(batch);
    if (lane !== undefined && this.#anchored && this.#flow.skip(batch, lane) && lane.isIdle) this.ranDry();
  }

  undecodable(batch: UndecodableBatch): void {
    const lane = this.#assignedLanes.of(batch);
    if (lane !== undefined && this.#anchored) this.#flow.block(batch, lane);
  }

  readable(readable: Readable): void {
    this.parts.stalledReads.seen(readable, performance.now());
  }

  heartbeat(): void {
    const { wasStale, wentOn } = this.#heartbeats.answered(performance.now());
    if (wentOn && this.#anchored) this.#goOn();
    if (!wasStale) return;
    this.parts.brokers.end();
    this.wake();
  }

  crashed(error: Error): void {
    clearInterval(this.#timer);
    this.#epoch += 1;
    this.#anchored = false;
    this.#dropLanes(
      this.lanes,
      new IdempotencyError('CONSUMER_CRASHED', 'The Kafka client crashed; a new one joins the group', {
        retryable: true,
        cause: error,
      }),
    );
    this.#transactions.keepOnly([]);
    this.#tellCrash(error);
  }

  // --- what the lanes ask ---

  mayStart(lane: Lane, strand: Strand): boolean {
    return this.#mayWork(lane) && (lane.kafka !== undefined || this.parts.outage.admits(strand));
  }

  /** What would begin something now, but for an outage of the database. */
  get ready(): readonly Strand[] {
    const lanes = this.lanes.filter(({ kafka }) => kafka === undefined);
    return lanes.filter((lane) => lane.isReady && this.#mayWork(lane)).flatMap((lane) => lane.probers);
  }

  /** Another member, which had the partition meanwhile or has it now. */
  outrun(lane: Lane): void {
    const message = 'The group stands elsewhere than this member had left it, so somebody else has committed there';
    this.#logger.warn(`${message}: ${lane.topic}[${lane.partition}] goes on from the group's offset (PRODUCER_FENCED)`);
    this.#anchorAnew([lane], new IdempotencyError('PRODUCER_FENCED', message, { retryable: true }));
  }

  settled(lane: Lane): void {
    if (lane.full && this.#anchored) this.#resume([lane]); // else the anchor resumes
  }

  ranDry(): void {
    for (const lane of this.lanes) if (lane.isIdle && this.#flow.isLost(lane)) void this.#reanchor(lane);
    void this.#commit();
  }

  /** The user paused or resumed a topic. What is being handled ends; nothing further begins while it is paused. */
  pauseChanged(topic: string): void {
    const lanes = this.lanes.filter((lane) => lane.topic === topic);
    if (lanes.length === 0) return;
    if (this.parts.isPaused(topic)) this.#client.pause(lanes);
    else if (this.#anchored) this.#resume(lanes);
    this.wake();
  }

  /** All lanes look again whether they may begin. */
  wake(): void {
    for (const lane of this.lanes) lane.wake();
  }

  /**
   * The database crashed or was started again, and what it had not written to its disk is gone. Lanes that had settled such records go on where the group
   * stands, and the claims tell what is there still. At once, so that nothing behind those records begins before them.
   */
  databaseRestarted(): void {
    const unsure = this.lanes.filter(({ ledger }) => !ledger.isDurable);
    if (unsure.length === 0) return;
    const message = 'The database began anew, and transactions that were not on its disk may be gone';
    this.#logger.warn(
      `${message}: ${unsure.length} partition(s) go on from the group's offset, and what is still there is skipped`,
    );
    this.#anchorAnew(unsure, new IdempotencyError('DATABASE_UNAVAILABLE', message, { retryable: true }));
  }

  /** Of which record, the database does not say; so nothing that is not settled yet is taken for safe before a barrier. */
  commitUnreplicated(): void {
    for (const lane of this.lanes) if (lane.kafka === undefined) lane.ledger.doubt();
  }

  // --- inside ---

  /** As after a join, for these lanes are wrong about where the group stands. */
  #anchorAnew(lanes: readonly Lane[], reason: IdempotencyError): void {
    this.#dropLanes(lanes, reason);
    this.#epoch += 1;
    this.#anchored = false;
    this.#committer.block();
    for (const lane of this.lanes) lane.hold();
    this.#client.pause(this.#assigned);
    void this.#anchor(this.#epoch);
  }

  #mayWork(lane: Lane): boolean {
    return !this.#ending && lane.ledger.committed !== undefined && !this.parts.isPaused(lane.topic) && !this.isStale;
  }

  /** The generation is the one it was. Seen when the coordinator moved: for minutes everything was handled and no offset was committed. */
  #goOn(): void {
    this.#committer.open();
    for (const lane of this.lanes) lane.release();
    void this.#commit();
  }

  #tick(): void {
    const now = performance.now();
    const detail = `no heartbeat was answered for ${Math.round(this.#heartbeats.silentMs(now) / 1000)} s`;
    if (this.#heartbeats.isStale(now) && !this.#heartbeats.isJoining)
      this.parts.brokers.begin('The brokers do not answer, so nothing new begins', detail);
    this.#tellStalled();
    const refusedMs = this.#committer.refusedMs(now);
    // kafkajs asks a coordinator that is frozen again and again, for minutes. A new client asks the others.
    if (this.#heartbeats.isLost(now)) this.crashed(new Error(detail));
    // When the coordinator moves it may take the heartbeats to the new one and leave the commits at the old one, for ever.
    else if (refusedMs > this.parts.config.sessionTimeout && !this.#heartbeats.isJoining)
      this.crashed(new Error(`no offset commit was taken for ${Math.round(refusedMs / 1000)} s`));
    else void this.#commit();
  }

  #tellStalled(): void {
    const [first] = this.stalledReads;
    if (first === undefined) this.parts.reads.end();
    else this.parts.reads.begin('Records cannot be read', stalledDetail(first));
  }

  async #anchor(epoch: number): Promise<void> {
    const partitions = this.#assigned;
    const isWanted = this.#isOf(epoch);
    const known = await this.#anchors.positions(partitions, isWanted);
    if (known === undefined) return; // a newer join has begun
    const opening = this.#anchors.toOpen(partitions, known, {
      laneOf: (place) => this.#assignedLanes.of(place)?.ledger,
      mayKeep: this.#mayKeepLanes,
    });
    this.#dropLanes(
      opening.flatMap(({ place }) => this.#assignedLanes.of(place) ?? []),
      new IdempotencyError('PARTITION_LOST', 'Another member may have worked on this partition meanwhile', {
        retryable: true,
      }),
    );
    for (const lane of this.lanes) lane.admit(); // those that are kept
    const openings = await this.#anchors.openings(opening, known, isWanted);
    if (openings === undefined) return;
    for (const { isForgotten, ...read } of openings) {
      this.#openLane({ ...read, committed: known.committed.get(partitionKey(read.place)) });
      if (isForgotten) this.#gaps.tellForgotten(read.place, startOf(read.anchor));
    }
    const lanes = this.lanes;
    this.#anchored = true;
    this.#mayKeepLanes = true;
    this.#committer.open();
    for (const lane of lanes) this.#flow.restart(lane);
    this.#resume(lanes);
    for (const lane of lanes) lane.release();
    this.#assignedLanes.tellAssigned(this.#memberId ?? '');
    await this.#commit(); // where the group had no offset, lanes wait until the first position stands
  }

  /** False once a newer join has begun, or the membership ends. */
  #isOf(epoch: number): () => boolean {
    return () => epoch === this.#epoch && !this.#ending;
  }

  #openLane(opening: Parameters<AssignedLanes['open']>[0]): Lane {
    const { place, anchor } = opening;
    const lane = this.#assignedLanes.open(opening);
    if (anchor.gap !== undefined) this.#gaps.tell(place, anchor.gap, anchor.kind);
    if (anchor.kind === 'stop') this.#flow.stop(lane, outOfRange(place, anchor.gap));
    return lane;
  }

  /** The lane waits for a position that does not come. Its own offset is written back over what kafkajs may have written there. */
  #lostPosition(lane: Lane): void {
    lane.ledger.commitOverwritten();
    if (lane.isIdle) void this.#reanchor(lane);
    void this.#commit();
  }

  /** Nothing is left in the lane, and nobody knows yet where it goes on. */
  async #reanchor(lane: Lane): Promise<void> {
    const isWanted = this.#isOf(this.#epoch);
    const known = await this.#anchors.positions([lane], isWanted);
    const bounds = known?.bounds.get(partitionKey(lane));
    if (bounds === undefined || lane.isDead || !lane.isIdle) return;
    const committed = known!.committed.get(partitionKey(lane));
    if (lane.kafka !== undefined && committed !== RESET && committed !== lane.ledger.committable) return lane.outrun();
    const anchor = inRange(lane.ledger.next, bounds, this.parts.offsetOutOfRange);
    if (anchor.gap === undefined) {
      lane.admit();
      this.#flow.restart(lane);
      this.#resume([lane]);
      return;
    }
    const place = { topic: lane.topic, partition: lane.partition };
    const parking = await this.#anchors.parkedOf({ place, anchor }, isWanted);
    if (parking === undefined || lane.isDead || !lane.isIdle) return;
    this.#dropLanes([lane], outOfRange(lane, anchor.gap));
    const next = this.#openLane({ place, anchor, parking, committed: undefined });
    this.#flow.restart(next);
    this.#resume([next]);
    next.release();
    await this.#commit();
  }

  #resume(lanes: readonly Lane[]): void {
    if (!this.#ending) this.#flow.resume(lanes);
  }

  async #commit(): Promise<void> {
    for (const lane of this.lanes) if (lane.kafka !== undefined) void lane.flush().then(() => lane.wake());
    await this.#committer.flush();
    this.wake(); // a first position may have been written
  }

  #dropLanes(lanes: readonly Lane[], reason: IdempotencyError): void {
    this.#assignedLanes.drop(lanes, reason);
    for (const lane of lanes) this.#flow.forget(lane);
  }
}
