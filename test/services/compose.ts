import { execFile } from 'node:child_process';
import { writeFile } from 'node:fs/promises';
import { basename, join } from 'node:path';
import { promisify } from 'node:util';
import { COMPOSE_FILE } from './clear-away.js';
import { freePorts } from '#src/testing/free-port.js';
import { packageRoot } from './package-root.js';
import type { RunFolder } from './run-folder.js';

const run = promisify(execFile);

export type ComposeService = 'kafka' | 'postgres';

/** Why docker-compose.yml cannot be used here, or undefined if it can. */
export async function composeObstacle(): Promise<string | undefined> {
  for (const args of [
    ['info', '--format', '{{.ServerVersion}}'],
    ['compose', 'version'],
  ]) {
    const failure = await run('docker', args, { timeout: 10_000 }).then(
      () => undefined,
      (error: Error & { stderr?: string }) => error.stderr?.trim() || error.message,
    );
    if (failure !== undefined) return `docker ${args[0]} fails: ${failure.split('\n').at(-1)}`;
  }
  return undefined;
}

/** Starts these services of docker-compose.yml under a project name and host ports of their own. They go with the run folder. */
export async function startComposeServices(
  runFolder: RunFolder,
  services: ComposeService[],
): Promise<{ brokers: string[]; databaseUrl: string }> {
  const [kafkaPort, postgresPort] = await freePorts(2);
  const file = join(packageRoot(), 'docker-compose.yml');
  const project = basename(runFolder.path).toLowerCase();
  // Before anything runs: whoever clears the folder away takes the project down by it.
  await writeFile(join(runFolder.path, COMPOSE_FILE), JSON.stringify({ project, file }));
  const env = { ...process.env, KAFKA_PORT: String(kafkaPort), POSTGRES_PORT: String(postgresPort) };
  const args = ['compose', '-p', project, '-f', file, 'up', '--detach', '--wait', '--wait-timeout', '180', ...services];
  await run('docker', args, { env, maxBuffer: 2 ** 26 }).catch((error: Error) => {
    throw new Error(
      `A container engine answers, but docker-compose.yml does not come up: ${error.message} ` +
        `Cure that, or set KAFKA_BROKERS and DATABASE_URL to services of your own, or stop the engine to have them embedded.`,
      { cause: error },
    );
  });
  return {
    brokers: [`127.0.0.1:${kafkaPort}`],
    databaseUrl: `postgres://postgres:postgres@127.0.0.1:${postgresPort}/postgres`,
  };
}
