import { randomBytes } from 'node:crypto';

const NAMES_PER_CONNECTION = 200;

/**
 * Names for prepared statements, found by their text:
 * - a connection holds at most 200 of them; what comes later on it is planned each time, as pg does by default;
 * - two instances never give one name, so that two applications may share a pool;
 * - after `forget()` every text gets a new name on every connection, so that no plan made before is used again.
 */
export class StatementNames {
  readonly #enabled: boolean;
  readonly #prefix = `nki_${randomBytes(4).toString('hex')}_`;
  #next = 0;
  #byConnection = new WeakMap<object, Map<string, string>>();

  constructor(enabled: boolean) {
    this.#enabled = enabled;
  }

  nameOf(connection: object, text: string): string | undefined {
    if (!this.#enabled) return undefined;
    let names = this.#byConnection.get(connection);
    if (names === undefined) this.#byConnection.set(connection, (names = new Map()));
    const known = names.get(text);
    if (known !== undefined) return known;
    if (names.size >= NAMES_PER_CONNECTION) return undefined;
    const name = `${this.#prefix}${(this.#next += 1)}`;
    names.set(text, name);
    return name;
  }

  forget(): void {
    this.#byConnection = new WeakMap();
  }
}

/**
 * A prepared statement that will fail for ever on its connection: "cached plan must not change result type" after a change of the table (0A000, which
 * means other things from other places), or a name the server no longer knows (26000).
 */
export function isStalePlan(error: unknown): boolean {
  const { code, routine } = (error ?? {}) as { code?: unknown; routine?: unknown };
  return code === '26000' || (code === '0A000' && routine === 'RevalidateCachedQuery');
}
