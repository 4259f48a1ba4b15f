import { fork } from 'node:child_process';
import { once } from 'node:events';
import { fileURLToPath } from 'node:url';
import { describe, expect, it } from 'vitest';
import { useDatabase, useWorld, versions } from './database.js';

const database = useDatabase();
const CHILD = fileURLToPath(new URL('./crash-child.js', import.meta.url));
const KILLS = 50;
const PACKAGES: Record<string, string> = { 'TypeORM 1.x': 'typeorm', 'TypeORM 0.3': 'typeorm-03' };

describe.each(versions)('a process that dies, %s', (name, orm) => {
  const world = useWorld(orm, database);

  it(`F02 F03 F04 SIGKILL 0-2 ms around COMMIT, ${KILLS} times: a claim is there exactly if its effect is`, async () => {
    for (let n = 0; n < KILLS; n += 1) await killOne(n);
    const claims = await world.claimIds();
    expect(await world.effectNames()).toEqual(claims);
    // The kill is aimed at the fourth commit of each run: some of them were done, some were not, else it missed.
    const fourth = claims.filter((id) => id.endsWith('-3')).length;
    expect(fourth).toBeGreaterThan(0);
    expect(fourth).toBeLessThan(KILLS);
  }, 600_000);

  async function killOne(n: number): Promise<void> {
    const child = fork(CHILD, [PACKAGES[name] ?? '', database.url, world.schema, String(n)], {
      stdio: 'inherit',
      execArgv: [],
    });
    const exit = once(child, 'exit');
    child.on('message', () => {
      const until = process.hrtime.bigint() + BigInt(Math.floor(Math.random() * 2_000_000));
      while (process.hrtime.bigint() < until);
      child.kill('SIGKILL');
    });
    const [code, signal] = (await exit) as [number | null, string | null];
    expect({ n, code, signal }).toEqual({ n, code: null, signal: 'SIGKILL' });
  }
});
