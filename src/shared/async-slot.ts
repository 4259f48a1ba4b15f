import { AsyncLocalStorage } from 'node:async_hooks';

/**
 * A class, as whatever else lives as long as a transaction: what one object literal makes, V8 may learn to put straight into its old generation, and there
 * it keeps all it refers to until the next full collection, though it is dead. That took a tenth of the time of each record.
 */
class Entry {
  constructor(
    readonly slot: string,
    readonly value: unknown,
    readonly outer: Entry | undefined,
  ) {}
}

const STORAGE = Symbol.for('nestjs-kafka-idempotency:async-context');
const processWide = globalThis as unknown as Record<symbol, AsyncLocalStorage<Entry> | undefined>;
/** One for all slots: up to Node 22 every promise of the process pays for each storage there is. One per process, so that two copies of the package see the same contexts. */
const storage = (processWide[STORAGE] ??= new AsyncLocalStorage<Entry>());

/** Something that code finds by being called from within, over awaits. */
export class AsyncSlot<T> {
  /** Those of one name are the same, also in another copy of the package. */
  constructor(private readonly name: string) {}

  get current(): T | undefined {
    for (let entry = storage.getStore(); entry !== undefined; entry = entry.outer)
      if (entry.slot === this.name) return entry.value as T | undefined;
    return undefined;
  }

  /** `undefined` hides what is outside. */
  run<R>(value: T | undefined, work: () => R): R {
    return storage.run(new Entry(this.name, value, storage.getStore()), work);
  }
}
