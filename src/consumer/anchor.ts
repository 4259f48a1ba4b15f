import type { OffsetBounds } from '../kafka/cluster-reader.js';

/** What a lane that is already there knows of itself. */
export interface LanePosition {
  readonly committable: bigint;
  readonly next: bigint;
  readonly committed: bigint | undefined;
}

export interface AnchorFacts {
  readonly lane: LanePosition | undefined;
  /** The group's offset as it was read after the join; undefined if there is none. */
  readonly committed: bigint | undefined;
  readonly bounds: OffsetBounds;
  readonly isSameMember: boolean;
  readonly fromBeginning: boolean;
  readonly offsetOutOfRange: 'earliest' | 'fail';
}

/** Offsets that were never handled and are gone, or were handled and come again: from where the group stood to where it goes on. */
export interface Gap {
  readonly from: bigint;
  readonly to: bigint;
}

/** Where a partition goes on after a join. */
export type Anchor =
  | { readonly kind: 'keep' }
  | { readonly kind: 'open'; readonly first: bigint; readonly gap: Gap | undefined }
  | { readonly kind: 'stop'; readonly at: bigint; readonly gap: Gap };

/**
 * Decides where a partition goes on. What its lane has done is believed only if the member is the same, the group's offset is the one this lane wrote, and
 * both still lie in the log: the bounds tell a topic that was made anew meanwhile, unless it has grown beyond the old one already. Never silently the end.
 */
export function anchorOf(facts: AnchorFacts): Anchor {
  const { lane, committed, bounds, isSameMember } = facts;
  if (lane !== undefined && isSameMember && committed !== undefined && committed === lane.committed) {
    if (bounds.low <= lane.committable && lane.next <= bounds.high) return { kind: 'keep' };
  }
  if (committed === RESET && lane !== undefined && isSameMember)
    return inRange(lane.committable, bounds, facts.offsetOutOfRange); // the client wrote over what this lane had written
  if (committed !== undefined) return inRange(committed, bounds, facts.offsetOutOfRange);
  if (lane?.committed !== undefined) return inRange(NOWHERE, bounds, 'earliest', lane.committed); // the group's offsets were deleted under us
  return { kind: 'open', first: facts.fromBeginning ? bounds.low : bounds.high, gap: undefined };
}

/** One that begins anew: a lane is opened for it. */
export type Opening = Exclude<Anchor, { kind: 'keep' }>;

/** The first offset that is handled. */
export function startOf(anchor: Opening): bigint {
  return anchor.kind === 'open' ? anchor.first : anchor.at;
}

const NOWHERE = -1n;
/** What kafkajs writes over an offset that is out of range. */
export const RESET = -2n;

/** `offset` if its records can still be there, else what the policy says. `from`: what a gap is told to begin with. */
export function inRange(
  offset: bigint,
  { low, high }: OffsetBounds,
  policy: 'earliest' | 'fail',
  from = offset,
): Opening {
  if (offset >= low && offset <= high) return { kind: 'open', first: offset, gap: undefined };
  const gap = { from, to: low };
  return policy === 'fail' ? { kind: 'stop', at: offset, gap } : { kind: 'open', first: low, gap };
}
