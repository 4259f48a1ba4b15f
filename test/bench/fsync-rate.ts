import { closeSync, fdatasyncSync, openSync, rmSync, writeSync } from 'node:fs';
import { join } from 'node:path';

const FOR_MS = 1000;

/** How many times a second 8 kB can be written over and be on disk in this folder's file system: what bounds a database that waits for each COMMIT. */
export function fsyncsPerSecond(folder: string): number {
  const file = join(folder, `fsync-rate-${process.pid}`);
  const page = Buffer.alloc(8192, 1);
  const descriptor = openSync(file, 'wx');
  try {
    const start = performance.now();
    let count = 0;
    for (; performance.now() - start < FOR_MS; count += 1) {
      writeSync(descriptor, page, 0, page.length, 0);
      fdatasyncSync(descriptor);
    }
    return count / ((performance.now() - start) / 1000);
  } finally {
    closeSync(descriptor);
    rmSync(file);
  }
}
