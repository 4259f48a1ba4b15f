import { AsyncResource } from 'node:async_hooks';
import { send, type PgClient } from './pg-client.js';

/**
 * SQL that names the run of the server it is asked in. A backend that crashes makes the server begin anew as well, which its start time does not show: but
 * then, as after every crash, the server's statistics begin anew. As numbers, for sessions differ in how they write times.
 */
export const SERVER_RUN = `concat_ws(' ', extract(epoch FROM pg_postmaster_start_time()), (SELECT extract(epoch FROM stats_reset) FROM pg_stat_archiver))`;

export const ASK_RUN = `SELECT ${SERVER_RUN} AS run`;

/**
 * Whether the server is still in the run it was in. A server that crashes forgets transactions it acknowledged before they were on disk, and answers a barrier
 * afterwards all the same: only another run tells. It is looked at
 * - before the first transaction on each connection, for none outlives its server: so before anything runs that those transactions should have come before;
 * - at each barrier, for a connection to a pooler does outlive it.
 */
export class ServerRun {
  #run: string | undefined;
  #restarted: () => void = () => {};
  readonly #met = new WeakSet<PgClient>();

  /** `restarted`: called at once, outside of every delivery, when another run is seen. What was not known to be on disk by then may be gone. */
  watch(restarted: () => void): void {
    this.#restarted = AsyncResource.bind(restarted);
  }

  /** To be awaited before the first use of a connection; undefined: it has been met. */
  meet(client: PgClient): Promise<void> | undefined {
    return this.#met.has(client) ? undefined : this.#meet(client);
  }

  /** `run`: what {@link SERVER_RUN} gave, compared with the one before. */
  told(run: string): 'same' | 'another' {
    const before = this.#run;
    this.#run = run;
    if (before === undefined || before === run) return 'same';
    this.#restarted();
    return 'another';
  }

  async #meet(client: PgClient): Promise<void> {
    const { rows } = await send(client, ASK_RUN);
    this.#met.add(client);
    this.told(rows[0]!['run'] as string);
  }
}
