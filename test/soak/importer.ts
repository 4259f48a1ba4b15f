import { fork } from 'node:child_process';
import { once } from 'node:events';
import { fileURLToPath } from 'node:url';
import { setTimeout as sleep } from 'node:timers/promises';
import type { RelayPlan } from '../integration/outbox/relay-child.js';
import type { Place } from './place.js';
import type { Random } from './random.js';
import { IMPORT_TOPIC } from './workload.js';

const CHILD = fileURLToPath(new URL('../integration/outbox/relay-child.js', import.meta.url));
/** The pace of the kills: the workers are to have most of the processor. */
const PAUSE_MS = 2_000;
/** How long a process has until it is where it is killed; under faults it may not come there. */
const PATIENCE_MS = 5_000;
const KILL_MS = 30;
const LAST_TRIES = 3;
const LAST_MS = 30_000;
/** So many of the inputs that are known to be stored are given again. */
const AGAIN = 20;

/** A job that publishes a list of inputs, each under itself as dedupeKey: killed again and again where it comes to new ones, and begun anew a little before those. */
export class Importer {
  readonly inputs: string[] = [];
  /** Processes killed when they had come to new inputs. */
  kills = 0;
  #stored = 0;
  #working: Promise<void> = Promise.resolve();
  readonly #end = new AbortController();

  constructor(
    private readonly place: Place,
    private readonly random: Random,
  ) {}

  start(): void {
    this.#working = this.#work();
  }

  /** Ends with a process that comes to the end of the list. If none does, the checker misses what was not sent. */
  async finish(): Promise<void> {
    await this.stop();
    for (let tries = 0; this.#stored < this.inputs.length && tries < LAST_TRIES; tries += 1)
      await this.#run(LAST_MS, 0, () => this.#stored === this.inputs.length);
  }

  async stop(): Promise<void> {
    this.#end.abort();
    await this.#working;
  }

  async #work(): Promise<void> {
    const { signal } = this.#end;
    while (!signal.aborted) {
      const known = this.#stored;
      for (let more = this.random.between(1, 4); more > 0; more -= 1) this.inputs.push(`input-${this.inputs.length}`);
      const isThere = (told: number) => told >= Math.min(known, AGAIN);
      if (await this.#run(PATIENCE_MS, this.random.between(0, KILL_MS), isThere)) this.kills += 1;
      await sleep(PAUSE_MS, undefined, { signal }).catch(() => undefined); // it is to end
    }
  }

  /** One process, killed so long after it has told enough. Tells whether it came so far. */
  async #run(patienceMs: number, killMs: number, isEnough: (told: number) => boolean): Promise<boolean> {
    const { databaseUrl: url, brokers } = this.place;
    const from = Math.max(0, this.#stored - AGAIN);
    const publish = { topic: IMPORT_TOPIC, inputs: this.inputs.slice(from) };
    const plan: RelayPlan = { url, schema: 'public', brokers: [...brokers], relay: true, publish };
    const child = fork(CHILD, [JSON.stringify(plan)], { stdio: ['ignore', 'ignore', 'ignore', 'ipc'], detached: true });
    const ended = once(child, 'exit'); // by itself too: under faults an import fails
    let told = 0;
    const late = new AbortController();
    const enough = new Promise<boolean>((resolve) => {
      const look = () => isEnough(told) && resolve(true);
      child.once('spawn', look);
      child.on('message', (message) => {
        if (message !== publish.inputs[told]) return; // of its relay
        told += 1;
        this.#stored = Math.max(this.#stored, from + told);
        look();
      });
    });
    const patience = sleep(patienceMs, false, { signal: late.signal }).catch(() => false); // it has come there
    const isThere = await Promise.race([enough, ended.then(() => false), patience]);
    late.abort();
    if (isThere) await sleep(killMs); // anywhere in its work
    child.kill('SIGKILL');
    await ended;
    return isThere;
  }
}
