import { Logger } from '@nestjs/common';

const EACH_MS = 60_000;

/** Tells that a commit was acknowledged without its synchronous standby: at once, then at most once a minute, for with a `statement_timeout` each commit may be. */
export class UnreplicatedNotice {
  readonly #logger = new Logger('IdempotentKafkaServer');
  #toldAtMs = -Infinity;
  #untold = 0;

  tell(detail: string): void {
    const nowMs = performance.now();
    this.#untold += 1;
    if (nowMs - this.#toldAtMs < EACH_MS) return;
    this.#logger.error(
      `The database acknowledged ${this.#untold} commit(s) without the synchronous standby ("${detail}"): a failover may still take them. No offset and no message of the outbox goes out that stands on them until the standby has confirmed a later commit (COMMIT_UNREPLICATED)`,
    );
    this.#toldAtMs = nowMs;
    this.#untold = 0;
  }
}
