import { execFile } from 'node:child_process';
import { cp, mkdir, rm, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { packageRoot } from '../services/package-root.js';

export interface AppKind {
  readonly name: string;
  readonly type: 'module' | 'commonjs';
  readonly dependencies: Readonly<Record<string, string>>;
  /** What the app is compiled with; the others are only checked. */
  readonly compilerOptions: Readonly<Record<string, unknown>>;
  readonly alsoChecked?: readonly Readonly<Record<string, unknown>>[];
  /** Run by Jest from TypeScript instead of compiled by tsc. */
  readonly isJest?: boolean;
}

/** Everything that an app of this kind shares with the others. */
const COMPILER_OPTIONS = {
  target: 'es2022',
  lib: ['es2023'],
  types: ['node'],
  strict: true,
  experimentalDecorators: true,
  emitDecoratorMetadata: true,
  useDefineForClassFields: false,
  esModuleInterop: true,
  skipLibCheck: false, // our declarations are to be checked; what others' have wrong is left out of the answer
  rootDir: '.',
  outDir: 'dist',
};

/** A small app in a folder of its own outside this tree, with the packed tarball and exact versions of its peers. */
export class ThrowAwayApp {
  private constructor(
    readonly folder: string,
    readonly kind: AppKind,
  ) {}

  static async install(folder: string, kind: AppKind, tarball: string): Promise<ThrowAwayApp> {
    await mkdir(folder, { recursive: true });
    await cp(join(packageRoot(), 'test/package/app'), folder, { recursive: true });
    if (!kind.isJest) await rm(join(folder, 'app.spec.ts'));
    const app = new ThrowAwayApp(folder, kind);
    await app.#write('package.json', {
      name: 'throw-away',
      private: true,
      type: kind.type,
      dependencies: { 'nestjs-kafka-idempotency': `file:${tarball}`, ...kind.dependencies },
      ...(kind.isJest ? { jest: JEST } : {}),
    });
    await app.#write('tsconfig.json', {
      compilerOptions: { ...COMPILER_OPTIONS, ...kind.compilerOptions },
      include: ['*.ts'],
    });
    // Strict about peers: the ranges of our package.json have to fit each other's.
    const options = [
      '--ignore-scripts',
      '--strict-peer-deps',
      '--prefer-offline',
      '--no-audit',
      '--no-fund',
      '--no-package-lock',
    ];
    await app.#run('npm', ['install', ...options]);
    return app;
  }

  /** Compiles the app, checking our declarations too, and returns what tsc reports, except about the declarations of other packages. */
  compile(): Promise<string[]> {
    return this.#typeErrors('tsconfig.json');
  }

  /** What tsc reports about the app's own files under other settings. */
  async check(compilerOptions: Readonly<Record<string, unknown>>): Promise<string[]> {
    await this.#write('tsconfig.check.json', {
      extends: './tsconfig.json',
      compilerOptions: { ...compilerOptions, skipLibCheck: true, noEmit: true },
    });
    return this.#typeErrors('tsconfig.check.json');
  }

  async #typeErrors(project: string): Promise<string[]> {
    const { error, stdout } = await this.#attempt(process.execPath, [
      'node_modules/typescript/bin/tsc',
      '-p',
      project,
      '--pretty',
      'false',
    ]);
    const errors = stdout.split('\n').filter((line) => line.includes('error TS'));
    if (error !== undefined && errors.length === 0) throw error; // it did not run at all, or too long
    return errors.filter((line) => !isOfOthers(line));
  }

  /** stdout and stderr of one-class.cjs. */
  async oneClass(): Promise<{ stdout: string; stderr: string }> {
    return this.#run(process.execPath, ['--trace-warnings', 'one-class.cjs']);
  }

  /** Runs the compiled app; resolves when it has closed and its process has ended by itself. */
  async handleBoth(env: Record<string, string>): Promise<void> {
    const program = this.kind.isJest ? ['node_modules/jest/bin/jest.js', '--ci', '--runInBand'] : ['dist/main.js'];
    await this.#run(process.execPath, program, env);
  }

  async #run(program: string, args: string[], env: Record<string, string> = {}): Promise<Output> {
    const output = await this.#attempt(program, args, env);
    if (output.error === undefined) return output;
    throw new Error(
      `${this.kind.name}: ${program} ${args.join(' ')} failed (${output.error.message.split('\n')[0]}).\n${output.stdout}\n${output.stderr}`,
    );
  }

  #attempt(program: string, args: string[], env: Record<string, string> = {}): Promise<Output> {
    const options = {
      cwd: this.folder,
      env: { ...environment(), ...env },
      timeout: 290_000,
      killSignal: 'SIGKILL',
      maxBuffer: 2 ** 26,
    } as const;
    return new Promise((resolve) => {
      execFile(program, args, options, (error, stdout, stderr) =>
        resolve({ error: error ?? undefined, stdout, stderr }),
      );
    });
  }

  #write(name: string, content: object): Promise<void> {
    return writeFile(join(this.folder, name), JSON.stringify(content, null, 2));
  }
}

interface Output {
  readonly error: Error | undefined;
  readonly stdout: string;
  readonly stderr: string;
}

/** ts-jest with its defaults, as in a project that Nest's command line made. The sources name `.js`, as ESM wants it. */
const JEST = {
  preset: 'ts-jest',
  testEnvironment: 'node',
  moduleNameMapper: { '^(\\.{1,2}/.*)\\.js$': '$1' },
  testPathIgnorePatterns: ['/node_modules/', '/dist/'],
};

function isOfOthers(line: string): boolean {
  return line.startsWith('node_modules/') && !line.startsWith('node_modules/nestjs-kafka-idempotency/');
}

/** Without what npm and vitest tell the processes they start: an app on its own would not see it. */
function environment(): NodeJS.ProcessEnv {
  const isTold = (name: string) =>
    /^(npm_(?!config_(?!local_prefix$|global_prefix$))|VITEST|NODE_ENV$|NODE_OPTIONS$|INIT_CWD$)/.test(name);
  return Object.fromEntries(Object.entries(process.env).filter(([name]) => !isTold(name)));
}
