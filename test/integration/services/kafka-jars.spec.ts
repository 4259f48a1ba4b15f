import { mkdtemp, readdir, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, expect, test } from 'vitest';
import { kafkaJars } from '../../services/kafka-jars.js';

let cacheRoot: string;

beforeEach(async () => {
  cacheRoot = await mkdtemp(join(tmpdir(), 'nki-jars-'));
});

afterEach(() => rm(cacheRoot, { recursive: true }));

test('two runs that fill the cache at once get the same, whole folder and leave nothing else', async () => {
  const [first, second] = await Promise.all([kafkaJars(cacheRoot), kafkaJars(cacheRoot)]);
  expect(second).toBe(first);
  expect(await readdir(first)).toEqual(expect.arrayContaining(['kafka_2.13-4.4.0.jar', 'log4j-slf4j-impl-2.25.5.jar']));
  expect(await readdir(cacheRoot)).toEqual([expect.stringMatching(/^kafka-4\.4\.0-[0-9a-f]{8}$/)]);
});

test('a filling that fails leaves nothing that a later run would trust', async () => {
  const { PATH } = process.env;
  process.env['PATH'] = '/nowhere';
  await expect(kafkaJars(cacheRoot)).rejects.toThrow('Maven could not resolve');
  process.env['PATH'] = PATH;
  expect(await readdir(cacheRoot)).toEqual([]);
});
