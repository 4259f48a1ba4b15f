import { existsSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';

/** The folder of the package's own package.json. The tests run compiled, below build/; what is not TypeScript stays in the tree. */
export function packageRoot(): string {
  let folder = dirname(fileURLToPath(import.meta.url));
  while (!existsSync(join(folder, 'package.json'))) {
    if (folder === dirname(folder)) throw new Error(`No package.json above ${fileURLToPath(import.meta.url)}.`);
    folder = dirname(folder);
  }
  return folder;
}
