import { spawn, type ChildProcess } from 'node:child_process';
import { existsSync } from 'node:fs';
import { mkdir, mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { createInterface } from 'node:readline';
import { afterEach, expect, onTestFinished, test } from 'vitest';
import { pidNamespace, processEntry } from '../../services/process-table.js';
import { treeOf } from '../../services/process-tree.js';
import { RunFolder } from '../../services/run-folder.js';
import { until } from 'nestjs-kafka-idempotency/testing';

interface Owner {
  child: ChildProcess;
  folder: string;
  watchdog: number;
  pids: number[];
}

const owners: ChildProcess[] = [];

afterEach(() => {
  for (const owner of owners.splice(0)) owner.kill('SIGKILL');
});

async function startOwner(): Promise<Owner> {
  const script = fileURLToPath(new URL('./pair-owner.js', import.meta.url));
  const child = spawn(process.execPath, [script], { stdio: ['pipe', 'pipe', 'inherit'] });
  owners.push(child);
  for await (const line of createInterface({ input: child.stdout })) {
    const facts = JSON.parse(line) as Omit<Owner, 'child'>;
    return { ...facts, child, pids: facts.pids.flatMap(treeOf) };
  }
  throw new Error('pair-owner.js ended without a word.');
}

const NOTHING_LEFT = { what: 'every process and the folder to be gone', timeoutMs: 20_000 };

function nothingLeft({ folder, pids, watchdog }: Owner): boolean {
  return ![...pids, watchdog].some((pid) => processEntry(pid)) && !existsSync(folder);
}

test('after the process that started the pair was killed no process and no folder remains', async () => {
  const owner = await startOwner();
  expect(owner.pids.length).toBeGreaterThan(2);
  owner.child.kill('SIGKILL');
  await until(() => nothingLeft(owner), NOTHING_LEFT);
});

test('when the watchdog was killed as well, the next run clears away', async () => {
  const owner = await startOwner();
  process.kill(owner.watchdog, 'SIGKILL');
  owner.child.kill('SIGKILL');
  await until(() => !processEntry(owner.child.pid as number), { what: 'the owner to end' });
  expect(existsSync(owner.folder)).toBe(true);
  await (await RunFolder.open()).close();
  expect(nothingLeft(owner)).toBe(true);
});

test('two pairs live side by side, and the end of one leaves the other alone', async () => {
  const [first, second] = await Promise.all([startOwner(), startOwner()]);
  first.child.kill('SIGKILL');
  await until(() => nothingLeft(first), NOTHING_LEFT);
  expect(second.pids.filter((pid) => !processEntry(pid))).toEqual([]);
  expect(existsSync(second.folder)).toBe(true);
  second.child.kill('SIGTERM');
  await until(() => nothingLeft(second), NOTHING_LEFT);
});

test('a folder whose owner is unknown is left alone and does not disturb', async () => {
  const stray = await mkdtemp(join(tmpdir(), 'nestjs-kafka-idempotency-stray-'));
  await (await RunFolder.open()).close();
  expect(existsSync(stray)).toBe(true);
  await rm(stray, { recursive: true });
});

test('a log that somebody kept beside the folders is left alone, without a word', async () => {
  const kept = join(tmpdir(), `nestjs-kafka-idempotency-${pidNamespace()}-999999-1-kept.log`);
  await writeFile(kept, 'what was said');
  onTestFinished(() => rm(kept));
  const warnings: Error[] = [];
  const keep = (warning: Error) => void warnings.push(warning);
  process.on('warning', keep);
  onTestFinished(() => void process.off('warning', keep));
  await (await RunFolder.open()).close();
  expect(existsSync(kept)).toBe(true);
  expect(warnings.filter(({ message }) => message.includes(kept))).toEqual([]);
});

test('a process that only got the pid of a dead service is left alone', async () => {
  const bystander = spawn('/bin/sleep', ['600']);
  const abandoned = join(tmpdir(), `nestjs-kafka-idempotency-${pidNamespace()}-${bystander.pid}-0-Abandoned`);
  await mkdir(join(abandoned, 'processes'), { recursive: true });
  await writeFile(join(abandoned, 'processes', String(bystander.pid)), 'SIGKILL');
  await (await RunFolder.open()).close();
  expect(existsSync(abandoned)).toBe(false);
  expect(processEntry(bystander.pid as number)).toBeDefined();
  bystander.kill('SIGKILL');
});

test('a program started after its folder was closed never runs', async () => {
  const folder = await RunFolder.open();
  await folder.close();
  const started = folder.spawn({
    command: '/bin/sh',
    args: ['-c', 'sleep 600', folder.path],
    log: '/dev/null',
    cwd: '/',
  });
  expect(await started.ended()).toEqual({ code: 97, signal: null });
});
