// Takes out of dist/ and build/ what no source stands behind any more: a removed file must not be shipped, a removed test not be run.
// Everything else stays, so that the builds can be incremental.
import { existsSync, readdirSync, rmSync } from 'node:fs';
import { join, relative } from 'node:path';
import { fileURLToPath } from 'node:url';

const root = fileURLToPath(new URL('..', import.meta.url));
const OUTPUTS = [
  { folder: 'dist/esm', source: 'src' },
  { folder: 'dist/cjs', source: 'src' },
  { folder: 'build/test', source: 'test' },
  { folder: 'build/sample', source: 'sample' },
];

const KEPT = new Set(['package.json', '.tsbuildinfo']); // dist/cjs says "commonjs" in the one; tsc knows by the other what is built

for (const { folder, source } of OUTPUTS)
  for (const file of filesBelow(join(root, folder))) {
    const name = relative(join(root, folder), file);
    if (KEPT.has(name)) continue;
    const stem = join(root, source, name.replace(/(\.d\.ts|\.js)(\.map)?$/, ''));
    if (!existsSync(`${stem}.ts`)) rmSync(file);
  }

function filesBelow(folder) {
  if (!existsSync(folder)) return [];
  return readdirSync(folder, { withFileTypes: true, recursive: true })
    .filter((entry) => entry.isFile())
    .map((entry) => join(entry.parentPath, entry.name));
}
