import type { Verdict } from './checker.js';
import type { Facts } from './facts.js';

const MEANINGS: Record<Verdict['invariant'], string> = {
  I1: 'each event has its effect exactly once',
  I2: 'a row of processed_events if and only if an effect',
  I3: "the group's offset is never past an unfinished record",
  I4: 'order per key',
  I5: 'each outbox row reaches Kafka',
  I6: 'progress resumes within its bound',
  I7: 'nothing vanishes',
};

export function tableOf(facts: Facts, verdicts: readonly Verdict[]): string {
  const kinds = Object.entries(facts.byKind)
    .sort(([, a], [, b]) => b - a)
    .map(([kind, times]) => `${kind} ${times}`);
  return [
    `seed ${facts.seed}, mode ${facts.mode}, ${facts.minutes} min, ${facts.faults} faults: ${kinds.join(', ')}`,
    '',
    ...verdicts.map(
      ({ invariant, verdict, detail }) =>
        `  ${invariant}  ${verdict.padEnd(9)}  ${MEANINGS[invariant].padEnd(55)} ${detail}`,
    ),
  ].join('\n');
}

export function jsonOf({ seed, minutes, mode, faults, byKind }: Facts, verdicts: readonly Verdict[]): string {
  const invariants = Object.fromEntries(verdicts.map(({ invariant, verdict }) => [invariant, verdict]));
  return JSON.stringify({ seed, minutes, mode, faults, byKind, invariants });
}
