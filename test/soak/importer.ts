import { fork } from 'node:child_process';
import { once } from 'node:events';
import { fileURLToPath } from 'node:url';
import { setTimeout as sleep } from 'node:timers/promises';
import type { RelayPlan } from '../integration/outbox/relay-child.js';
import type { Place } from './place.js';
import type { Random } from './random.js';
import { IMPORT_TOPIC } from './workload.js';

const CHILD = fileURLToPath(new URL('../integration/outbox/relay-child.js', import.meta.url));
const PAUSE_MS = 2_000;
const LAST_TRIES = 3;
const LAST_MS = 30_000;

/** A job that publishes a list of inputs, each under itself as dedupeKey: killed again and again, and begun anew with the same list and a few more. */
export class Importer {
  readonly inputs: string[] = [];
  starts = 0;
  #working: Promise<void> = Promise.resolve();
  readonly #end = new AbortController();

  constructor(
    private readonly place: Place,
    private readonly random: Random,
  ) {}

  start(): void {
    this.#working = this.#work();
  }

  /** Ends with a process that comes to the end of the list. */
  async finish(): Promise<void> {
    await this.stop();
    for (let tries = 1; !(await this.#run(LAST_MS, 'stored')); tries += 1)
      if (tries === LAST_TRIES) throw new Error(`The import did not come to its end in ${LAST_MS} ms.`);
  }

  async stop(): Promise<void> {
    this.#end.abort();
    await this.#working;
  }

  async #work(): Promise<void> {
    const { signal } = this.#end;
    while (!signal.aborted) {
      for (let more = this.random.between(1, 4); more > 0; more -= 1) this.inputs.push(`input-${this.inputs.length}`);
      await this.#run(this.random.between(500, 3_000), 'killed');
      await sleep(PAUSE_MS, undefined, { signal }).catch(() => undefined);
    }
  }

  /** One process, for so long at most. Tells whether it has stored all. */
  async #run(ms: number, until: 'stored' | 'killed'): Promise<boolean> {
    const { databaseUrl: url, brokers } = this.place;
    const publish = { topic: IMPORT_TOPIC, inputs: this.inputs };
    const plan: RelayPlan = { url, schema: 'public', brokers: [...brokers], relay: true, publish };
    const child = fork(CHILD, [JSON.stringify(plan)], { stdio: ['ignore', 'ignore', 'ignore', 'ipc'], detached: true });
    this.starts += 1;
    const left = new Set<unknown>(this.inputs);
    const ended = once(child, 'exit'); // by itself too: under faults an import fails
    const stored = new Promise<void>((resolve) =>
      child.on('message', (input) => {
        left.delete(input);
        if (left.size === 0 && until === 'stored') resolve();
      }),
    );
    await Promise.race([ended, stored, sleep(ms)]);
    child.kill('SIGKILL');
    await ended;
    return left.size === 0;
  }
}
