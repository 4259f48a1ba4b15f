import type { Mode } from './mode.js';

/** A record as it stands in the topic. */
export interface LoggedRecord {
  readonly topic: string;
  readonly partition: number;
  readonly offset: number;
  readonly id: string;
  readonly key: string;
}

/** A send of one record. `unknown`: Kafka may have it or not. */
export interface Send {
  readonly topic: string;
  readonly id: string;
  readonly isPoison: boolean;
  readonly answer: 'acknowledged' | 'unknown';
}

export interface Effect {
  readonly consumer: string;
  readonly id: string;
  readonly key: string;
}

/** A message in the output topic; `eventId` is what a consumer deduplicates it by. */
export interface Output {
  readonly eventId: string;
  readonly key: string;
  readonly consumer: string;
  readonly id: string;
}

export interface Import {
  readonly eventId: string;
  readonly input: string;
}

export interface ParkedRow {
  readonly consumer: string;
  readonly id: string;
  readonly state: string;
}

/** How long it took after a fault until all partitions it concerned moved again. */
export interface Recovery {
  readonly fault: string;
  readonly at: number;
  /** undefined: not within three times the bound. */
  readonly ms?: number;
  readonly boundMs: number;
}

export interface Position {
  readonly topic: string;
  readonly partition: number;
  readonly offset: number;
}

/** Everything the checker judges, as it was found. */
export interface Facts {
  readonly seed: number;
  readonly minutes: number;
  readonly mode: Mode;
  readonly faults: number;
  readonly byKind: Record<string, number>;
  /** `consumer` handles the topic of the same index. */
  readonly consumers: readonly { readonly consumer: string; readonly topic: string }[];
  readonly hasParking: boolean;
  readonly sends: readonly Send[];
  readonly log: readonly LoggedRecord[];
  /** In the order in which the handlers wrote them. */
  readonly effects: readonly Effect[];
  readonly balances: readonly { readonly consumer: string; readonly key: string; readonly amount: number }[];
  readonly processed: readonly { readonly consumer: string; readonly id: string }[];
  /** Before the replay. */
  readonly parked: readonly ParkedRow[];
  /** Ids with an effect before the replay that should have had none. */
  readonly early: readonly string[];
  /** After the replay. */
  readonly leftParked: readonly ParkedRow[];
  /** What the workers have relayed, in the order of each partition; undefined where they do not publish. */
  readonly outputs?: readonly Output[] | undefined;
  /** A job's inputs, and the messages that came of them, in their order. */
  readonly imports?:
    { readonly inputs: readonly string[]; readonly kills: number; readonly messages: readonly Import[] } | undefined;
  /** Rows of the outbox at the end. */
  readonly leftInOutbox: number;
  readonly committed: readonly Position[];
  /** Records the group's offset had passed, during the run, without an effect and not parked. */
  readonly passed: readonly Omit<LoggedRecord, 'key'>[];
  readonly recoveries: readonly Recovery[];
  /** Records that were not committed when the bound of the quiet phase was reached. */
  readonly lag: number;
  /** Workers that ended by themselves, or not within the deadline when they were asked to. */
  readonly lost: readonly string[];
}
