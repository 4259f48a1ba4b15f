import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { pathToFileURL } from 'node:url';
import { expect, test } from 'vitest';
import { packageRoot } from '../../services/package-root.js';

interface Mutation {
  readonly name: string;
  readonly file: string;
  readonly find: string;
}

test('each guard that the mutation check takes out stands where it is looked for, once', async () => {
  const table = pathToFileURL(join(packageRoot(), 'etc', 'mutation-table.mjs')).href;
  const { MUTATIONS } = (await import(table)) as { MUTATIONS: readonly Mutation[] };
  const times = MUTATIONS.map(({ name, file, find }) => {
    const text = readFileSync(join(packageRoot(), file), 'utf8');
    return [name, text.split(find).length - 1];
  });
  expect(times).toEqual(MUTATIONS.map(({ name }) => [name, 1]));
});
