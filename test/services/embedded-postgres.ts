import { randomBytes } from 'node:crypto';
import { chown, cp, readFile, rm, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import pg from 'pg';
import { freePort } from '#src/testing/free-port.js';
import { postgresBinaries } from './postgres-binaries.js';
import { RunFolder } from './run-folder.js';
import type { ServiceProcess } from './service-process.js';
import { until } from 'nestjs-kafka-idempotency/testing';

export interface EmbeddedPostgresOptions {
  /** Server settings by name, such as `{ wal_writer_delay: '10ms', log_statement: 'all' }`. They win over ours. Default none. */
  settings?: Record<string, string | number>;
  /** Folder to live in. Default one of its own, gone with `close()`. */
  runFolder?: RunFolder;
}

/** `fast` ends sessions and checkpoints; `immediate` is a crash that tidies up: the next start recovers from the WAL. */
export type StopMode = 'fast' | 'immediate';

/** A new, empty PostgreSQL on a free loopback port, with fsync on. */
export async function startEmbeddedPostgres(options: EmbeddedPostgresOptions = {}): Promise<EmbeddedPostgresServer> {
  const runFolder = options.runFolder ?? (await RunFolder.open());
  try {
    return await EmbeddedPostgresServer.create(runFolder, options);
  } catch (error) {
    if (!options.runFolder) await runFolder.close();
    throw error;
  }
}

interface ServerFacts {
  runFolder: RunFolder;
  /** The run folder was made for this server alone. */
  ownsFolder: boolean;
  bin: string;
  password: string;
  settings: Record<string, string | number>;
}

const START_TRIES = 3;

/**
 * A PostgreSQL server that a test may stop, kill, freeze and start again.
 *
 * - Port, data and `databaseUrl` stay the same over every stop, kill and start.
 * - After `kill()` no backend is left either, so a start right after it succeeds.
 * - It ends with `close()`, and in any case with this process.
 */
export class EmbeddedPostgresServer {
  private server: ServiceProcess | undefined;
  private starting: Promise<void> | undefined;
  private closing: Promise<void> | undefined;

  private constructor(
    private readonly facts: ServerFacts,
    private folder: string,
    private currentPort: number,
  ) {}

  /** Use `startEmbeddedPostgres`. */
  static async create(runFolder: RunFolder, options: EmbeddedPostgresOptions): Promise<EmbeddedPostgresServer> {
    const folder = await runFolder.makeFolder(`postgres-${randomBytes(3).toString('hex')}`);
    const bin = await reachableBinaries(runFolder, folder);
    const password = randomBytes(12).toString('hex');
    const ownsFolder = !options.runFolder;
    const facts = { runFolder, ownsFolder, bin, password, settings: { ...options.settings } };
    await initialise(facts, folder);
    const server = new EmbeddedPostgresServer(facts, folder, await freePort());
    await server.startOnFreePort();
    return server;
  }

  get port(): number {
    return this.currentPort;
  }

  get databaseUrl(): string {
    return `postgres://postgres:${this.facts.password}@127.0.0.1:${this.port}/postgres`;
  }

  /** What the server logs; with `settings: { log_statement: 'all' }` every statement. */
  get logFile(): string {
    return join(this.folder, 'server.log');
  }

  get isRunning(): boolean {
    return this.server?.isRunning ?? false;
  }

  /** Pid of the postmaster while it runs. */
  get pid(): number | undefined {
    return this.isRunning ? this.server?.pid : undefined;
  }

  /** Resolves when queries are answered. */
  start(): Promise<void> {
    this.starting ??= this.launch().finally(() => (this.starting = undefined));
    return this.starting;
  }

  async stop(mode: StopMode = 'fast'): Promise<void> {
    await this.server?.stop(mode === 'fast' ? 'SIGINT' : 'SIGQUIT', 30_000);
  }

  /** SIGKILL for the postmaster and every backend at the same moment. */
  async kill(): Promise<void> {
    await this.server?.kill();
  }

  async restart(mode: StopMode = 'fast'): Promise<void> {
    await this.stop(mode);
    await this.start();
  }

  /** SIGSTOP for the whole server: connections stay open, nothing answers. */
  pause(): void {
    this.server?.pause();
  }

  resume(): void {
    this.server?.resume();
  }

  /** A second server that follows this one by streaming. When it resolves every commit waits for it. */
  async addStandby(): Promise<EmbeddedPostgresServer> {
    const { runFolder, settings, password } = this.facts;
    const folder = await runFolder.makeFolder(`standby-${randomBytes(3).toString('hex')}`);
    await this.copyTo(folder);
    const primary_conninfo = `host=127.0.0.1 port=${this.port} user=postgres password=${password}`;
    const facts = { ...this.facts, ownsFolder: false, settings: { ...settings, primary_conninfo } };
    const standby = new EmbeddedPostgresServer(facts, folder, await freePort());
    await standby.startOnFreePort();
    await this.asked(async (client) => {
      await client.query(`ALTER SYSTEM SET synchronous_standby_names = '*'`); // the copy has not got it
      await client.query('SELECT pg_reload_conf()');
      const waited = `SELECT 1 FROM pg_stat_replication WHERE sync_state = 'sync'`;
      await until(async () => (await client.query(waited)).rowCount === 1, { what: 'the standby to be waited for' });
    });
    return standby;
  }

  /** Dies as by `kill()`, and its standby takes its place, under the address of this one. */
  async failOver(standby: EmbeddedPostgresServer): Promise<void> {
    await this.kill();
    await standby.asked(async (client) => {
      const { rows } = await client.query<{ isDone: boolean }>('SELECT pg_promote() AS "isDone"');
      if (!rows[0]!.isDone) throw new Error('The standby was not promoted within a minute.');
    });
    await standby.stop();
    await rm(join(this.folder, 'data'), { recursive: true });
    this.folder = standby.folder;
    await this.start();
  }

  /** Ends the server and removes its data. */
  close(): Promise<void> {
    this.closing ??= this.facts.ownsFolder ? this.facts.runFolder.close() : this.stop('immediate');
    return this.closing;
  }

  /** The port was free a moment ago; if somebody took it since, another one is tried. Only before the first start: later it must stay. */
  private async startOnFreePort(): Promise<void> {
    for (let tries = 1; ; tries++) {
      try {
        return await this.start();
      } catch (error) {
        const log = await readFile(this.logFile, 'utf8');
        if (tries === START_TRIES || !log.includes('Address already in use')) throw error;
        this.currentPort = await freePort();
      }
    }
  }

  private async launch(): Promise<void> {
    if (this.isRunning) return;
    const server = this.facts.runFolder.spawn({
      command: join(this.facts.bin, 'postgres'),
      args: ['-D', join(this.folder, 'data'), ...this.settingArgs()],
      log: this.logFile,
      env: serverEnvironment(),
      user: this.facts.runFolder.user,
      endSignal: 'SIGQUIT',
    });
    this.server = server;
    await until(async () => !server.isRunning || (await this.answers()), {
      what: `PostgreSQL on port ${this.port} to answer`,
      timeoutMs: 60_000,
    });
    if (!server.isRunning) {
      const { code, signal } = await server.ended();
      throw new Error(`PostgreSQL ended at its start (${code ?? signal}): ${await tail(this.logFile)}`);
    }
  }

  /** Its data, while it runs. */
  private async copyTo(folder: string): Promise<void> {
    const { runFolder } = this.facts;
    const data = join(folder, 'data');
    const label = await this.asked(async (client) => {
      await client.query(`SELECT pg_backup_start('standby', true)`);
      // A file that goes meanwhile is none the copy needs: only the tar that unpacks decides how it ends.
      const script =
        'mkdir -m 700 "$1" && tar -C "$0" --exclude=postmaster.pid --exclude=pg_internal.init -cf - . | tar -C "$1" -xf -';
      const log = join(folder, 'copy.log');
      const args = ['-c', script, join(this.folder, 'data'), data];
      const copy = runFolder.spawn({ command: '/bin/sh', args, log, user: runFolder.user });
      const { code, signal } = await copy.ended();
      if (code !== 0) throw new Error(`The copy for a standby failed (${code ?? signal}): ${await tail(log)}`);
      const { rows } = await client.query<{ labelfile: string }>('SELECT labelfile FROM pg_backup_stop(false)');
      return rows[0]!.labelfile;
    });
    for (const [name, content] of Object.entries({ backup_label: label, 'standby.signal': '' })) {
      await writeFile(join(data, name), content);
      if (runFolder.user) await chown(join(data, name), runFolder.user.uid, runFolder.user.gid);
    }
  }

  private async asked<T>(ask: (client: pg.Client) => Promise<T>): Promise<T> {
    const client = new pg.Client({ connectionString: this.databaseUrl, connectionTimeoutMillis: 2_000 });
    // Without a listener a server that dies under the client would end the process.
    client.on('error', () => undefined);
    try {
      await client.connect();
      return await ask(client);
    } finally {
      await client.end().catch(() => undefined);
    }
  }

  private settingArgs(): string[] {
    const settings = {
      listen_addresses: '127.0.0.1',
      port: this.port,
      unix_socket_directories: '',
      // Both kinds of shared memory would stay behind after a SIGKILL; a file in the data folder goes with it.
      dynamic_shared_memory_type: 'mmap',
      max_connections: 200,
      log_line_prefix: '%m [%p] ',
      ...this.facts.settings,
    };
    return Object.entries(settings).flatMap(([name, value]) => ['-c', `${name}=${value}`]);
  }

  private async answers(): Promise<boolean> {
    await this.asked((client) => client.query('SELECT 1'));
    return true;
  }
}

async function initialise({ runFolder, bin, password }: ServerFacts, folder: string): Promise<void> {
  const log = join(folder, 'initdb.log');
  const passwordFile = join(folder, 'password');
  // Readable for the server's user: the folder itself is closed to everybody else.
  await writeFile(passwordFile, `${password}\n`, { mode: 0o644 });
  const locale = ['--encoding=UTF8', '--locale=C', '--locale-provider=builtin', '--builtin-locale=C.UTF-8'];
  const access = ['--username=postgres', `--pwfile=${passwordFile}`, '--auth=scram-sha-256'];
  const initdb = runFolder.spawn({
    command: join(bin, 'initdb'),
    args: ['-D', join(folder, 'data'), '--no-sync', '--no-instructions', ...locale, ...access],
    log,
    env: serverEnvironment(),
    user: runFolder.user,
  });
  const { code, signal } = await initdb.ended();
  if (code !== 0) throw new Error(`initdb failed (${code ?? signal}): ${await tail(log)}`);
}

/**
 * The binaries where the server's user can run them. As root that user is another one, and a project in root's home is
 * closed to it: then they are copied into the run folder.
 */
async function reachableBinaries(runFolder: RunFolder, folder: string): Promise<string> {
  const installed = postgresBinaries();
  if (!runFolder.user) return join(installed, 'bin');
  const probe = runFolder.spawn({
    command: '/bin/sh',
    args: [
      '-c',
      'test -x "$0" && test -r "$1" && test -w "$2"',
      join(installed, 'bin/postgres'),
      join(installed, 'share'),
      folder,
    ],
    log: join(folder, 'initdb.log'),
    user: runFolder.user,
  });
  if ((await probe.ended()).code === 0) return join(installed, 'bin');
  const copy = await runFolder.makeFolder('postgres-binaries');
  await cp(installed, copy, { recursive: true, verbatimSymlinks: true });
  return join(copy, 'bin');
}

/** Not the user's: PGPORT, PGDATA or LC_ALL of the shell would change what is started. */
function serverEnvironment(): NodeJS.ProcessEnv {
  return { PATH: process.env['PATH'], LC_ALL: 'C', TZ: 'UTC' };
}

async function tail(file: string): Promise<string> {
  const lines = (await readFile(file, 'utf8')).trimEnd().split('\n');
  return lines.slice(-20).join('\n');
}
