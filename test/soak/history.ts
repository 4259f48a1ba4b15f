import { createWriteStream, mkdtempSync, type WriteStream } from 'node:fs';
import { readFile, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type { Facts } from './facts.js';

/** What happened, line by line as it happens, and at the end the facts for the checker. The folder stays after the run. */
export class History {
  readonly folder: string;
  readonly #lines: WriteStream;
  readonly #startedAt = performance.now();

  constructor(seed: number) {
    this.folder = mkdtempSync(join(tmpdir(), `soak-${seed}-`));
    this.#lines = createWriteStream(join(this.folder, 'history.jsonl'));
  }

  /** Milliseconds since the start. */
  now(): number {
    return Math.round(performance.now() - this.#startedAt);
  }

  note(kind: string, details: object): void {
    this.#lines.write(`${JSON.stringify({ at: this.now(), kind, ...details })}\n`);
  }

  async keep(facts: Facts): Promise<void> {
    await writeFile(join(this.folder, 'facts.json'), JSON.stringify(facts));
  }

  async close(): Promise<void> {
    await new Promise<void>((resolve) => this.#lines.end(() => resolve()));
  }
}

export async function readFacts(folder: string): Promise<Facts> {
  return JSON.parse(await readFile(join(folder, 'facts.json'), 'utf8')) as Facts;
}
