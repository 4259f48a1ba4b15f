import { readFileSync } from 'node:fs';
import { readFile } from 'node:fs/promises';
import { join, posix } from 'node:path';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { World } from '../e2e/kit/world.js';
import { packageRoot } from '../services/package-root.js';
import { RunFolder } from '../services/run-folder.js';
import { packInto, type Tarball } from './tarball.js';
import { ThrowAwayApp, type AppKind } from './throw-away-app.js';

const { devDependencies: ours } = JSON.parse(readFileSync(join(packageRoot(), 'package.json'), 'utf8')) as {
  devDependencies: Record<string, string>;
};

const COMMON = pinned(
  '@types/node',
  'class-transformer',
  'class-validator',
  'kafkajs',
  'pg',
  'reflect-metadata',
  'rxjs',
);
const NEST_12 = {
  ...COMMON,
  ...pinned('@nestjs/common', '@nestjs/core', '@nestjs/microservices', '@nestjs/typeorm', 'typescript'),
};
const NEST_11 = {
  ...COMMON,
  '@nestjs/common': '11.2.10',
  '@nestjs/core': '11.2.10',
  '@nestjs/microservices': '11.2.6',
  '@nestjs/typeorm': '11.0.3',
};

const KINDS: AppKind[] = [
  {
    name: 'an ESM app on Nest 12',
    type: 'module',
    dependencies: { ...NEST_12, ...pinned('typeorm') },
    compilerOptions: { module: 'nodenext' },
    alsoChecked: [{ module: 'node16' }, { module: 'node18' }, { module: 'esnext', moduleResolution: 'bundler' }],
  },
  {
    name: 'a CommonJS app on Nest 11, tested with Jest and moduleResolution node10',
    type: 'commonjs',
    dependencies: {
      ...NEST_11,
      ...pinned('typeorm'),
      typescript: '5.9.3',
      jest: '30.5.2',
      'ts-jest': '29.4.15',
      '@types/jest': '30.0.0',
    },
    compilerOptions: { module: 'commonjs', moduleResolution: 'node10', types: ['node', 'jest'] },
    alsoChecked: [
      { module: 'node16', moduleResolution: 'node16' },
      { module: 'node18', moduleResolution: 'node16' },
      { module: 'nodenext', moduleResolution: 'nodenext' },
    ],
    isJest: true,
  },
  {
    name: `a CommonJS app on Nest 12 and Node ${process.versions.node.split('.')[0]}`,
    type: 'commonjs',
    dependencies: { ...NEST_12, ...pinned('typeorm') },
    compilerOptions: { module: 'nodenext' },
  },
  {
    name: 'an app on TypeORM 0.3',
    type: 'module',
    dependencies: { ...NEST_12, typeorm: (ours['typeorm-03'] ?? '').replace('npm:typeorm@', '') },
    compilerOptions: { module: 'node18' },
  },
];

let folder: RunFolder;
let tarball: Tarball;
beforeAll(async () => {
  folder = await RunFolder.open();
  tarball = await packInto(folder.path);
});
afterAll(() => folder.close());

describe('the tarball', () => {
  test('holds every source file in both formats, with types and maps, and no file whose source is gone', async () => {
    const built = tarball.files.filter((file) => file.startsWith('dist/') && file !== 'dist/cjs/package.json');
    const stems = tarball.files
      .filter((file) => file.startsWith('src/'))
      .map((file) => file.replace(/^src\/(.*)\.ts$/, '$1'));
    const expected = stems.flatMap((stem) =>
      ['esm', 'cjs'].flatMap((format) =>
        ['js', 'js.map', 'd.ts', 'd.ts.map'].map((ending) => `dist/${format}/${stem}.${ending}`),
      ),
    );
    expect(built.toSorted()).toEqual(expected.toSorted());
    expect(tarball.files).toContain('dist/cjs/package.json');
  });

  test('holds nothing else but the SQL, the licence, the readme and the changelog', () => {
    expect(tarball.files.filter((file) => !/^(dist|src|sql)\//.test(file)).toSorted()).toEqual([
      'CHANGELOG.md',
      'LICENSE',
      'README.md',
      'package.json',
    ]);
    expect(tarball.files.filter((file) => file.startsWith('sql/'))).toContain('sql/0001-processed-events.sql');
  });

  test('has the source behind every map', async () => {
    const files = new Set(tarball.files);
    const missing: string[] = [];
    for (const file of tarball.files.filter((name) => name.endsWith('.map'))) {
      const { sources } = JSON.parse(await readFile(join(packageRoot(), file), 'utf8')) as { sources: string[] };
      for (const source of sources) {
        const path = posix.join(posix.dirname(file), source);
        if (!files.has(path)) missing.push(`${path}, of ${file}`);
      }
    }
    expect(missing).toEqual([]);
  });
});

describe.each(KINDS)('installed in $name', (kind) => {
  let app: ThrowAwayApp;
  beforeAll(async () => {
    app = await ThrowAwayApp.install(join(folder.path, String(KINDS.indexOf(kind))), kind, tarball.path);
  }, 300_000);

  test('it compiles in every module setting of its kind', async () => {
    expect(await app.compile()).toEqual([]);
    for (const compilerOptions of kind.alsoChecked ?? [])
      expect({ compilerOptions, errors: await app.check(compilerOptions) }).toEqual({ compilerOptions, errors: [] });
  }, 180_000);

  test('require and import give the same classes, and no warning', async () => {
    expect(await app.oneClass()).toEqual(
      expect.objectContaining({
        stdout: 'nestjs-kafka-idempotency: one\nnestjs-kafka-idempotency/schema: one\n',
        stderr: '',
      }),
    );
  });

  test('it handles an event sent twice once, and the process ends by itself', async () => {
    const world = await World.create();
    try {
      const topic = await world.topic();
      await world.send(topic, { id: 'a' }, { id: 'a' });
      await app.handleBoth({
        TOPIC: topic,
        GROUP: world.group,
        KAFKA_BROKERS: world.brokers.join(','),
        DATABASE_URL: world.databaseUrl,
      });
      expect(await world.effects()).toEqual(['a']);
      expect(await world.processed()).toEqual(['orders/a']);
      expect(await world.committed(topic)).toBe(2n);
    } finally {
      await world.close();
    }
  }, 180_000);
});

/** Versions as this repository pins them. */
function pinned(...names: string[]): Record<string, string> {
  return Object.fromEntries(
    names.map((name) => {
      const version = ours[name];
      if (version === undefined) throw new Error(`${name} is no devDependency of package.json.`);
      return [name, version];
    }),
  );
}
