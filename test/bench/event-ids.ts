import { randomUUID } from 'node:crypto';

export const ID_VERSIONS = ['v4', 'v7'] as const;
export type IdVersion = (typeof ID_VERSIONS)[number];

/** Ids of 36 characters, as producers make them. Version 7 (RFC 9562) begins with the time in milliseconds. */
export function newEventId(version: IdVersion, nowMs: number): string {
  const random = randomUUID();
  if (version === 'v4') return random;
  const time = nowMs.toString(16).padStart(12, '0');
  return `${time.slice(0, 8)}-${time.slice(8)}-7${random.slice(15)}`;
}

/** The same in SQL, with the time of the event in the column `at`. PostgreSQL itself has it from 18 on. */
export function eventIdInSql(version: IdVersion): string {
  if (version === 'v4') return 'gen_random_uuid()::text';
  const time = "lpad(to_hex((extract(epoch FROM at) * 1000)::bigint), 12, '0')";
  return `substr(${time}, 1, 8) || '-' || substr(${time}, 9, 4) || '-7' || substr(gen_random_uuid()::text, 16)`;
}
