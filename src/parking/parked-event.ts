import type { ParkedRow } from './parked-row.js';

/** A parked event as people and tools see it: the record's bytes as they came, and what happened to it. */
export interface ParkedEvent extends Omit<ParkedRow, 'headerNames' | 'headerValues'> {
  /** In the record's order; a header may come more than once, and without a value. */
  readonly headers: readonly (readonly [name: string, value: Buffer | null])[];
}

export function parkedEvent({ headerNames, headerValues, ...row }: ParkedRow): ParkedEvent {
  return { ...row, headers: headerNames.map((name, index) => [name, headerValues[index] ?? null] as const) };
}
