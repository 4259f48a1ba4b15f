import type { EventEmitter } from 'node:events';
import type { DataSource } from 'typeorm';

/** Where PostgreSQL waits for a synchronous standby. Of a message only this is never translated, and the SQLSTATE is that of any warning. */
const WAITS_IN = 'SyncRepWaitForLSN';

/** The parts of pg's notice that are used here. */
interface Notice {
  readonly routine?: string;
  readonly message?: string;
}

/**
 * A COMMIT whose wait for a synchronous standby is cancelled (by a person, by `statement_timeout`) answers success and a warning: the transaction is on this server's disk, and a failover
 * may still take it. PostgreSQL says so to the connection that committed and nowhere else. It is heard here on each connection of the pool from its first checkout on, whatever is
 * committed on it, and always before the COMMIT is answered.
 */
export class StandbyWaits {
  /** How many waits were given up so far. */
  givenUp = 0;
  #pool: EventEmitter | undefined;
  readonly #heard = new WeakSet<EventEmitter>();

  constructor(private readonly tell: (detail: string) => void) {}

  listen(dataSource: DataSource): void {
    const { master } = dataSource.driver as unknown as { master?: EventEmitter }; // the pg pool of TypeORM's PostgresDriver
    this.#pool = master?.on('acquire', this.#onAcquire);
  }

  stop(): void {
    this.#pool?.removeListener('acquire', this.#onAcquire);
    this.#pool = undefined;
  }

  readonly #onAcquire = (client: EventEmitter): void => {
    if (this.#heard.has(client)) return;
    this.#heard.add(client);
    client.on('notice', this.#onNotice);
  };

  readonly #onNotice = ({ routine, message }: Notice): void => {
    if (routine !== WAITS_IN || this.#pool === undefined) return;
    this.givenUp += 1;
    this.tell(message ?? routine);
  };
}
