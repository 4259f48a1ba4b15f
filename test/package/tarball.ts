import { execFile } from 'node:child_process';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { packageRoot } from '../services/package-root.js';

export interface Tarball {
  readonly path: string;
  /** Below the package's root. */
  readonly files: readonly string[];
}

/** Packs what is built. `npm test` builds first; nothing is built here, for other tests run from the same folders. */
export async function packInto(folder: string): Promise<Tarball> {
  const { stdout } = await promisify(execFile)(
    'npm',
    ['pack', '--ignore-scripts', '--json', '--pack-destination', folder],
    { cwd: packageRoot(), maxBuffer: 2 ** 26 },
  );
  const [packed] = JSON.parse(stdout) as [{ filename: string; files: { path: string }[] }];
  return { path: join(folder, packed.filename), files: packed.files.map(({ path }) => path) };
}
