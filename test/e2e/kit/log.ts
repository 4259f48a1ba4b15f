import type { LoggerService } from '@nestjs/common';

export interface LogLine {
  readonly level: 'log' | 'warn' | 'error';
  readonly text: string;
}

/** A logger for an application under test that keeps what it is told, and shows it if TEST_LOG is set. */
export class KeptLog implements LoggerService {
  readonly lines: LogLine[] = [];

  log(message: unknown): void {
    this.#keep('log', message);
  }
  warn(message: unknown): void {
    this.#keep('warn', message);
  }
  error(message: unknown): void {
    this.#keep('error', message);
  }
  debug(): void {}

  /** Lines that contain the text. */
  with(text: string): LogLine[] {
    return this.lines.filter((line) => line.text.includes(text));
  }

  #keep(level: LogLine['level'], message: unknown): void {
    const text = message instanceof Error ? message.message : String(message);
    this.lines.push({ level, text });
    if (process.env['TEST_LOG']) process.stderr.write(`${new Date().toISOString()} ${level} ${text}\n`);
  }
}
