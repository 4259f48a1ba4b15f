import { readFileSync } from 'node:fs';
import { cpus, tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import pg from 'pg';
import { packageRoot } from '../services/package-root.js';
import type { Services } from '../services/services.js';
import { fsyncsPerSecond } from './fsync-rate.js';

/** What figures depend on that is the same for all of them: versions, processors, the database's settings and its disk. */
export async function placeOf(services: Services): Promise<string> {
  const versions = ['@nestjs/core', 'kafkajs', 'typeorm', 'pg'].map((name) => `${name} ${versionOf(name)}`);
  const processors = cpus();
  return [
    `Nest ${versionOf('@nestjs/core').split('.')[0]}: ${versions.join(', ')}, Node ${process.versions.node}; ${await serverOf(services.databaseUrl)}`,
    `${processors.length} × ${processors[0]?.model ?? 'unknown processor'}; ${diskOf(services)}`,
  ].join('\n');
}

function versionOf(name: string): string {
  const file = join(packageRoot(), 'node_modules', name, 'package.json');
  return (JSON.parse(readFileSync(file, 'utf8')) as { version: string }).version;
}

async function serverOf(databaseUrl: string): Promise<string> {
  const client = new pg.Client({ connectionString: databaseUrl });
  await client.connect();
  try {
    const { rows } = await client.query<{ name: string; setting: string }>(
      `SELECT name, current_setting(name) AS setting FROM pg_settings
       WHERE name IN ('fsync', 'synchronous_commit', 'server_version', 'shared_buffers', 'max_wal_size')`,
    );
    const { server_version: version, ...settings } = Object.fromEntries(
      rows.map(({ name, setting }) => [name, setting]),
    );
    const told = Object.entries(settings).map(([name, setting]) => `${name} ${setting}`);
    return `PostgreSQL ${version} with ${told.join(', ')}`;
  } finally {
    await client.end();
  }
}

/** Of a database that was given only its own machine knows the disk. */
function diskOf({ postgres }: Services): string {
  const folder = postgres === undefined ? tmpdir() : dirname(postgres.logFile);
  const whose =
    postgres === undefined ? "this machine's temp folder, the database's own is not known" : "the database's disk";
  return `${Math.round(fsyncsPerSecond(folder))} fsyncs/s (8 kB, fdatasync) on ${whose}`;
}
