import { closeSync, copyFileSync, fstatSync, openSync, writeSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { basename, join } from 'node:path';
import { Kafka } from 'kafkajs';
import { RunFolder } from '../../test/services/run-folder.js';

/** What workers and clients say during a run. It goes with the run, however that ends, unless it is kept for a look at a failure. */
export class LogFile {
  private constructor(
    private readonly folder: RunFolder,
    private readonly path: string,
    /** For the standard output and error of a child process. */
    readonly descriptor: number,
  ) {}

  static async open(): Promise<LogFile> {
    const folder = await RunFolder.open();
    const path = join(folder.path, 'demo.log');
    return new LogFile(folder, path, openSync(path, 'a'));
  }

  write(line: string): void {
    writeSync(this.descriptor, `${new Date().toISOString()} ${line}\n`);
  }

  /** Puts a copy where it stays, and says where that is. Nothing if nobody has said anything. */
  keep(): string {
    if (fstatSync(this.descriptor).size === 0) return '';
    const kept = join(tmpdir(), `${basename(this.folder.path)}.log`);
    copyFileSync(this.path, kept);
    return `\nWhat workers and clients said: ${kept}`;
  }

  async close(): Promise<void> {
    closeSync(this.descriptor);
    await this.folder.close();
  }
}

/** kafkajs's own words go to the log. */
export function kafkaLoggingTo(log: LogFile, { brokers }: { readonly brokers: string[] }): Kafka {
  const logCreator =
    () =>
    ({ label, log: entry }: { label: string; log: { message: string } }) =>
      log.write(`${label} kafkajs ${JSON.stringify(entry)}`);
  return new Kafka({ clientId: 'demo', brokers, logCreator });
}
