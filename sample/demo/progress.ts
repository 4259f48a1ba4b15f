import { count } from './report.js';

export interface Progress {
  readonly elapsedMs: number;
  readonly events: number;
  readonly sent: number;
  readonly applied: number;
  readonly kills: number;
  readonly skipped: number;
}

const CELLS = 24;

/** `████░░░░  42 %  …`, for a line that is drawn again and again. */
export function progressBar(progress: Progress): string {
  const done = Math.min(1, progress.applied / progress.events);
  const full = Math.floor(done * CELLS);
  const percent = `${Math.floor(done * 100)} %`.padStart(5);
  return `  ${'█'.repeat(full)}${'░'.repeat(CELLS - full)} ${percent}  ${facts(progress)}`;
}

/** The same as one of many lines, for a log. */
export function progressLine(progress: Progress): string {
  return `  ${(progress.elapsedMs / 1000).toFixed(0).padStart(3)} s  ${facts(progress)}`;
}

function facts({ sent, applied, kills, skipped }: Progress): string {
  return `${count(sent)} sent, ${count(applied)} applied, ${count(kills)} ${kills === 1 ? 'kill' : 'kills'}, ${count(skipped)} skipped`;
}
