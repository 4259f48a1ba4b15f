import ms, { type StringValue } from 'ms';

/** Milliseconds, or a text that `ms` understands: `500`, `'30s'`, `'14d'`. */
export type Duration = number | StringValue;

/** Milliseconds of a duration, or undefined if it is none (not finite, negative, or a text `ms` cannot read). */
export function durationMs(value: unknown): number | undefined {
  const parsed =
    typeof value === 'string' && value.length > 0 && value.length <= 100 ? ms(value as StringValue) : value;
  return typeof parsed === 'number' && Number.isFinite(parsed) && parsed >= 0 ? parsed : undefined;
}
