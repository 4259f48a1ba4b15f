import type { WriteStream } from 'node:tty';
import { progressBar, progressLine, type Progress } from './progress.js';

const LINE_EVERY_MS = 2_000;
const CLEAR_LINE = '\r\x1b[2K';

/** What the user sees: sentences, and in between a bar that is redrawn where there is a terminal, a line now and then where there is none. */
export class Screen {
  #barIsDrawn = false;
  #lastLineMs = -Infinity;

  constructor(private readonly output: WriteStream) {}

  say(text: string): void {
    this.#eraseBar();
    this.output.write(`${text}\n`);
  }

  progress(progress: Progress): void {
    if (this.output.isTTY) {
      this.output.write(CLEAR_LINE + progressBar(progress).slice(0, this.output.columns - 1));
      this.#barIsDrawn = true;
    } else if (progress.elapsedMs - this.#lastLineMs >= LINE_EVERY_MS) {
      this.#lastLineMs = progress.elapsedMs;
      this.say(progressLine(progress));
    }
  }

  /** The last state, which stays. */
  finished(progress: Progress): void {
    this.#lastLineMs = -Infinity;
    this.progress(progress);
    if (this.#barIsDrawn) this.output.write('\n');
    this.#barIsDrawn = false;
  }

  #eraseBar(): void {
    if (this.#barIsDrawn) this.output.write(CLEAR_LINE);
    this.#barIsDrawn = false;
  }
}
