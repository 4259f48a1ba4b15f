import type { OpenRequest, OpenTransaction } from './open-transaction.js';

/** A transaction that may be begun behind the COMMIT of another. Whoever commits that begins it; whoever asked for it uses it at once or discards it. */
export class NextTransaction {
  #opening: Promise<OpenTransaction> | undefined;

  constructor(readonly request: OpenRequest) {}

  opens(opening: Promise<OpenTransaction>): void {
    this.#opening = opening;
    opening.catch(() => undefined); // told to whoever takes it
  }

  /** Once; undefined if nothing was begun. Rejects as opening it by itself does. */
  take(): Promise<OpenTransaction> | undefined {
    const opening = this.#opening;
    this.#opening = undefined;
    return opening;
  }

  /** Resolves when nothing is left of it. */
  async discard(): Promise<void> {
    const transaction = await this.take()?.catch(() => undefined); // one that could not be opened has left nothing
    await transaction?.rollback();
  }
}
