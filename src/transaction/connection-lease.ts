import type { DataSource } from 'typeorm';
import { requestCancel, type PgClient } from './pg-client.js';

/** Then it goes to the pool all the same, for that sees to the age of its connections. */
const TRANSACTIONS = 100;

/** The parts of TypeORM's PostgreSQL driver that are used here; the same in 0.3 and 1.x. */
interface PostgresDriver {
  /** The pg pool. */
  readonly master?: { readonly waitingCount: number };
  obtainMasterConnection(): Promise<[PgClient, (error?: Error) => void]>;
}

/** A connection from its checkout to its return: for one transaction, or for some that follow one another on it. */
export class ConnectionLease {
  /** Who is told that the connection broke. */
  holder: (error: Error) => void = () => {};
  #isReturned = false;
  #followers = 0;
  readonly #onError = (error: Error): void => this.holder(error);

  static async take(dataSource: DataSource): Promise<ConnectionLease> {
    const driver = dataSource.driver as unknown as PostgresDriver;
    const [client, release] = await driver.obtainMasterConnection();
    return new ConnectionLease(client, release, driver);
  }

  private constructor(
    readonly client: PgClient,
    private readonly release: (error?: Error) => void,
    private readonly driver: PostgresDriver,
  ) {
    client.on('error', this.#onError);
  }

  /** Another transaction may follow: nobody waits for a connection. */
  get mayBeFollowed(): boolean {
    const isWanted = (this.driver.master?.waitingCount ?? 0) > 0;
    return !isWanted && !this.#isReturned && this.#followers < TRANSACTIONS;
  }

  follow(): void {
    this.#followers += 1;
  }

  /** To the pool, which closes it if there was trouble. */
  return(trouble?: Error): void {
    if (this.#isReturned) return;
    this.#isReturned = true;
    this.client.removeListener('error', this.#onError);
    this.release(trouble);
  }

  /** Closed at once, whatever it is doing; pending queries reject. */
  cut(): void {
    if (!this.client.readyForQuery) requestCancel(this.client);
    this.client.connection.stream.destroy();
  }
}
