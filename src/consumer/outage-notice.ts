import { Logger } from '@nestjs/common';
import type { EmitEvent } from '../shared/events.js';

const ENDED = {
  DATABASE_UNAVAILABLE: 'The database is',
  BROKER_UNAVAILABLE: 'The brokers are',
  READ_STALLED: 'What could not be read is',
};

/** Tells once that something is away, and once that it is back. */
export class OutageNotice {
  readonly #logger = new Logger('IdempotentKafkaServer');
  #begun: { readonly since: Date; readonly detail: string } | undefined;

  constructor(
    private readonly code: keyof typeof ENDED,
    private readonly emit: EmitEvent,
  ) {}

  get begun(): { readonly since: Date; readonly detail: string } | undefined {
    return this.#begun;
  }

  /** `what` begins the log line: what is away and what that means. */
  begin(what: string, detail: string): void {
    if (this.#begun !== undefined) return;
    this.#begun = { since: new Date(), detail };
    this.#logger.error(`${what}: ${detail} (${this.code})`);
    this.emit({ name: 'outage', code: this.code, detail });
  }

  end(): void {
    if (this.#begun === undefined) return;
    const seconds = Math.round((Date.now() - this.#begun.since.getTime()) / 1000);
    this.#begun = undefined;
    const detail = `back after ${seconds} s`;
    this.#logger.log(`${ENDED[this.code]} ${detail}`);
    this.emit({ name: 'recovered', code: this.code, detail });
  }
}
