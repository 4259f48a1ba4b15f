import { execFile } from 'node:child_process';
import { join } from 'node:path';
import { promisify } from 'node:util';

const run = promisify(execFile);
const OLDEST = 17; // Apache Kafka 4 brokers want it

export function java(): string {
  const home = process.env['JAVA_HOME'];
  return home ? join(home, 'bin', 'java') : 'java';
}

/** Why the broker cannot run on this machine's Java, or undefined if it can. */
export async function javaObstacle(): Promise<string | undefined> {
  const output = await run(java(), ['-XX:-UsePerfData', '-version']).then(
    ({ stderr }) => stderr,
    () => '',
  );
  if (output === '') return `no Java runtime was found (${java()} does not start)`;
  const major = Number(/version "(\d+)/.exec(output)?.[1]);
  return major >= OLDEST ? undefined : `${java()} is Java ${major}, and Kafka wants ${OLDEST} or newer`;
}
