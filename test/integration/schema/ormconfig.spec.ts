import { execFile } from 'node:child_process';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { describe, expect, it } from 'vitest';
import { packageRoot } from '../../services/package-root.js';
import { tablesIn } from './catalog-of.js';
import { rejection, useDatabase, useSchema } from './own-schema.js';

const run = promisify(execFile);
const database = useDatabase();
const own = useSchema(database);

const typeorm = (command: string, env: NodeJS.ProcessEnv) =>
  run(
    process.execPath,
    [join(packageRoot(), 'node_modules/typeorm/cli.js'), command, '-d', join(packageRoot(), 'build/ormconfig.js')],
    {
      env: { PATH: process.env['PATH'], ...env },
    },
  );

describe('ormconfig', () => {
  it('lets the TypeORM CLI run and revert our migrations', async () => {
    const env = { DATABASE_URL: database.url, PGOPTIONS: `-c search_path=${own.name}` };
    await typeorm('migration:run', env);
    expect(await tablesIn(own.dataSource, own.name)).toEqual([
      'migrations',
      'outbox_dedupe',
      'outbox_events',
      'outbox_messages',
      'outbox_shards',
      'parked_events',
      'processed_events',
      'running_records',
    ]);
    for (let times = 0; times < 3; times += 1) await typeorm('migration:revert', env);
    expect(await tablesIn(own.dataSource, own.name)).toEqual(['migrations']);
  });

  it('says how to get a database when DATABASE_URL is missing', async () => {
    const failure = (await rejection(typeorm('migration:run', {}))) as Error & { stdout: string; stderr: string };
    expect(`${failure.stdout}${failure.stderr}`).toMatch(/DATABASE_URL is not set.*npm run services.*docker compose/);
  });
});
