import { hash } from 'node:crypto';

/**
 * What a claim keeps of the value, to tell the same id with other content: the first 8 bytes of its sha256 as a signed bigint in decimal; `'0'` for a
 * tombstone.
 */
export function fingerprint(value: Buffer | null): string {
  if (value === null) return '0';
  return BigInt.asIntN(64, BigInt(`0x${hash('sha256', value, 'hex').slice(0, 16)}`)).toString();
}
