import type { ErrorCode } from './errors.js';

export interface HealthReason {
  readonly code: ErrorCode;
  readonly detail: string;
  readonly since: Date;
}

export interface PartitionProgress {
  readonly topic: string;
  readonly partition: number;
  /** The lowest offset that is not finished. */
  readonly position: string;
  /** The group's offset as this member last knew it. */
  readonly committed: string | null;
  /** Fetched records that wait, the one being handled included. */
  readonly buffered: number;
  readonly state: 'running' | 'retrying' | 'paused' | 'outage' | 'stopped';
  readonly since: Date;
}

export interface HealthReport {
  /** False: restart this process. */
  readonly live: boolean;
  /** False: this process does not make progress at the moment. */
  readonly ready: boolean;
  readonly reasons: readonly HealthReason[];
  readonly partitions: readonly PartitionProgress[];
}

/** Port: health asks the consumer how it is doing. */
export interface ConsumerProgress {
  health(): HealthReport;
}
