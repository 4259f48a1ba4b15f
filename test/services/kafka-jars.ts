import { execFile } from 'node:child_process';
import { createHash } from 'node:crypto';
import { existsSync } from 'node:fs';
import { mkdir, mkdtemp, readFile, readdir, rename, rm, stat } from 'node:fs/promises';
import { homedir } from 'node:os';
import { dirname, join } from 'node:path';
import { promisify } from 'node:util';
import { packageRoot } from './package-root.js';

const run = promisify(execFile);
const STALE_FILLING_MS = 3_600_000;

/**
 * The folder with the broker's jars, resolved by Maven from test/services/kafka/pom.xml the first time.
 *
 * - A folder under its final name is complete: it is filled under another name and renamed, so neither a killed run nor
 *   two runs at once leave a half-filled one behind.
 * - Its name holds a hash of the pom: a changed pom is resolved again.
 */
export async function kafkaJars(cacheRoot = defaultCacheRoot()): Promise<string> {
  const pom = join(packageRoot(), 'test/services/kafka/pom.xml');
  const jars = join(cacheRoot, await cacheName(pom));
  if (existsSync(jars)) return jars;
  await mkdir(cacheRoot, { recursive: true });
  await removeStaleFillings(cacheRoot);
  const filling = await mkdtemp(join(cacheRoot, 'filling-'));
  try {
    await resolveWithMaven(pom, filling);
    await renameUnlessThere(filling, jars);
  } finally {
    await rm(filling, { recursive: true, force: true });
  }
  return jars;
}

/** Why the jars cannot be had here, or undefined if they can. */
export async function kafkaJarsObstacle(cacheRoot = defaultCacheRoot()): Promise<string | undefined> {
  const pom = join(packageRoot(), 'test/services/kafka/pom.xml');
  if (existsSync(join(cacheRoot, await cacheName(pom)))) return undefined;
  return run('mvn', ['--version']).then(
    () => undefined,
    () => 'Maven (mvn) is not on the PATH and its jars are not in the cache yet',
  );
}

function defaultCacheRoot(): string {
  return join(process.env['XDG_CACHE_HOME'] || join(homedir(), '.cache'), 'nestjs-kafka-idempotency');
}

async function cacheName(pom: string): Promise<string> {
  const text = await readFile(pom, 'utf8');
  const version = /<kafka\.version>(.+)<\/kafka\.version>/.exec(text)?.[1];
  if (!version) throw new Error(`${pom} has no <kafka.version>.`);
  return `kafka-${version}-${createHash('sha256').update(text).digest('hex').slice(0, 8)}`;
}

async function resolveWithMaven(pom: string, folder: string): Promise<void> {
  const args = ['-q', '-B', '-f', pom, 'dependency:copy-dependencies', `-DoutputDirectory=${folder}`];
  const options = { cwd: dirname(folder), timeout: 600_000, maxBuffer: 2 ** 26 };
  await run('mvn', args, options).catch((error: Error & { stdout?: string }) => {
    throw new Error(
      `Maven could not resolve the broker's jars (${pom}): ${error.message} ${error.stdout ?? ''}\n` +
        `Give Maven a way to its repository, or set KAFKA_BROKERS to a Kafka of your own.`,
      { cause: error },
    );
  });
}

async function renameUnlessThere(from: string, to: string): Promise<void> {
  await rename(from, to).catch((error: NodeJS.ErrnoException) => {
    // Another run was faster: its folder is as complete as ours.
    if (error.code !== 'ENOTEMPTY' && error.code !== 'EEXIST') throw error;
  });
}

/** What a killed run left half-filled. A filling takes minutes at most, so an old one has no owner any more. */
async function removeStaleFillings(cacheRoot: string): Promise<void> {
  for (const name of await readdir(cacheRoot)) {
    const path = join(cacheRoot, name);
    if (!name.startsWith('filling-') || Date.now() - (await stat(path)).mtimeMs < STALE_FILLING_MS) continue;
    await rm(path, { recursive: true, force: true });
  }
}
