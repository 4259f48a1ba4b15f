import { spawn, type ChildProcess } from 'node:child_process';
import { fileURLToPath } from 'node:url';
import { afterEach, beforeAll, describe, expect, test } from 'vitest';
import { findOrStartServices, startEmbeddedPostgres, type EmbeddedPostgresServer } from '../../services/services.js';
import { until } from 'nestjs-kafka-idempotency/testing';

const MAIN = fileURLToPath(new URL('../../services/main.js', import.meta.url));

/** The environment without what would be found in it. */
function bareEnvironment(): NodeJS.ProcessEnv {
  const { KAFKA_BROKERS: _brokers, DATABASE_URL: _url, ...env } = process.env;
  return env;
}

describe('given services', () => {
  let postgres: EmbeddedPostgresServer;

  beforeAll(async () => {
    postgres = await startEmbeddedPostgres();
    return () => postgres.close();
  });

  test('are used and not stopped', async () => {
    const env = { KAFKA_BROKERS: `127.0.0.1:${postgres.port}, 127.0.0.1:1`, DATABASE_URL: postgres.databaseUrl };
    const services = await findOrStartServices({ env });
    expect(services).toMatchObject({
      brokers: [`127.0.0.1:${postgres.port}`, '127.0.0.1:1'],
      databaseUrl: postgres.databaseUrl,
      origin: { kafka: 'environment', postgres: 'environment' },
    });
    await services.stop();
    expect(postgres.isRunning).toBe(true);
  });

  test('are taken each on its own', async () => {
    const services = await findOrStartServices({ env: { KAFKA_BROKERS: `127.0.0.1:${postgres.port}` } });
    expect(services.origin.kafka).toBe('environment');
    expect(services.origin.postgres).not.toBe('environment');
    expect(services.databaseUrl).toMatch(/^postgres:\/\//);
    await services.stop();
  });

  test('that do not answer fail with their name and the remedy', async () => {
    const finding = findOrStartServices({ env: { KAFKA_BROKERS: '127.0.0.1:1', DATABASE_URL: postgres.databaseUrl } });
    await expect(finding).rejects.toThrow(
      'KAFKA_BROKERS is set, but nothing answers at 127.0.0.1:1 (ECONNREFUSED). Start that service, or unset KAFKA_BROKERS',
    );
  });
});

describe('npm run services', () => {
  let child: ChildProcess | undefined;
  let output = '';
  let errors = '';

  function start(env: NodeJS.ProcessEnv): ChildProcess {
    output = errors = '';
    child = spawn(process.execPath, [MAIN], { env, stdio: ['ignore', 'pipe', 'pipe'] });
    child.stdout?.on('data', (chunk) => (output += String(chunk)));
    child.stderr?.on('data', (chunk) => (errors += String(chunk)));
    return child;
  }

  async function end(): Promise<number | null> {
    await until(() => child?.exitCode !== null || child.signalCode !== null, { what: 'its end', timeoutMs: 30_000 });
    return child?.exitCode ?? null;
  }

  afterEach(() => child?.kill('SIGKILL'));

  test.each(['SIGINT', 'SIGTERM'] as const)('prints what it started, stays, and ends with 0 on %s', async (signal) => {
    const running = start(bareEnvironment());
    await until(() => output.includes('DATABASE_URL='), { what: `both lines (${errors})`, timeoutMs: 60_000 });
    expect(output).toMatch(/^KAFKA_BROKERS=127\.0\.0\.1:\d+\nDATABASE_URL=postgres:\/\/\S+\n$/);
    running.kill(signal);
    expect(await end()).toBe(0);
  });

  test('with nothing to start from fails with one message that names the three ways', async () => {
    start({ PATH: '/nowhere', HOME: '/nowhere', DATABASE_URL: '' });
    expect(await end()).toBe(1);
    for (const way of ['1. Set KAFKA_BROKERS', '2. Start a container engine', '3. Install a Java runtime']) {
      expect(errors).toContain(way);
    }
  });
});
