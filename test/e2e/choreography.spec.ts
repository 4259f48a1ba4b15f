import { fork } from 'node:child_process';
import { once } from 'node:events';
import { setTimeout as sleep } from 'node:timers/promises';
import { fileURLToPath } from 'node:url';
import { Kafka, logLevel } from 'kafkajs';
import { expect, onTestFinished, test } from 'vitest';
import { until, type UntilOptions } from 'nestjs-kafka-idempotency/testing';
import { freePort } from '#src/testing/free-port.js';
import { Customers } from '../../sample/02-choreography/demo/customers.js';
import { sumOf } from '../../sample/02-choreography/demo/sums.js';
import { SERVICES, Workspace, type ServiceName } from '../../sample/02-choreography/demo/workspace.js';

const SAMPLE = new URL('../../sample/', import.meta.url);
const PRELOADED = [new URL('end-with-parent.js', SAMPLE), new URL('kit/die-at.js', import.meta.url)];
/** In the handler's transaction; before and after its COMMIT; with the offset on its way; between Kafka's acknowledgement and the delete of the outbox's rows. */
const DEATHS = ['claimed@4', 'handled@7', 'processed@5', 'committing@2', 'relayed@3'];
const SESSION_MS = 1_000;

async function testWorkspace(): Promise<Workspace> {
  const brokers = process.env['KAFKA_BROKERS']!.split(',');
  const services = {
    brokers,
    databaseUrl: process.env['DATABASE_URL']!,
    origin: { kafka: 'environment', postgres: 'environment' } as const,
    stop: () => Promise.resolve(),
  };
  const workspace = await Workspace.create(services, new Kafka({ brokers, logLevel: logLevel.NOTHING }));
  onTestFinished(() => workspace.close());
  return workspace;
}

test('through two services and three hops, each killed at every point of its work: each order has exactly one payment and one shipment', async () => {
  const workspace = await testWorkspace();
  const port = await freePort();
  const deaths = { shop: 0, warehouse: 0 };

  /** One life. `DIE_AT` empty: until the test ends. */
  const live = (name: ServiceName, dieAt: string) => {
    const child = fork(fileURLToPath(new URL(`02-choreography/${name}/main.js`, SAMPLE)), {
      execArgv: PRELOADED.flatMap((url) => ['--import', url.href]),
      env: {
        ...process.env,
        KAFKA_PREFIX: workspace.prefix,
        DATABASE_SCHEMA: workspace.schemaOf(name),
        SESSION_MS: String(SESSION_MS),
        PORT: String(port),
        DIE_AT: dieAt,
      },
      stdio: process.env['TEST_LOG'] ? 'inherit' : ['ignore', 'ignore', 'inherit', 'ipc'],
    });
    const ended = once(child, 'exit');
    onTestFinished(async () => {
      child.kill('SIGKILL');
      await ended;
    });
    return ended as Promise<[number | null, NodeJS.Signals | null]>;
  };
  const lives = async (name: ServiceName) => {
    for (const dieAt of DEATHS) {
      expect(await live(name, dieAt), `the ${name} that was to die at ${dieAt}`).toEqual([null, 'SIGKILL']);
      deaths[name] += 1;
      if (process.env['TEST_LOG']) console.error(new Date().toISOString(), `the ${name} died at ${dieAt}`);
    }
    void live(name, '');
  };

  const customers = new Customers(`http://127.0.0.1:${port}`);
  const ordered = { number: 0, isOver: false };
  const ordering = Array.from({ length: 4 }, async () => {
    const { signal } = new AbortController();
    while (!ordered.isOver) {
      await customers.order(ordered.number++, signal);
      await sleep(50); // the pace of the orders
    }
  });
  await Promise.all(SERVICES.map(lives));
  ordered.isOver = true;
  await Promise.all(ordering);
  const end: UntilOptions = { what: 'everything to be sent and handled', timeoutMs: 30_000, intervalMs: 100 };
  await until(async () => (await workspace.left()) === 0, end);

  expect(deaths).toEqual({ shop: DEATHS.length, warehouse: DEATHS.length });
  for (const [list, lines] of Object.entries(await workspace.lines()))
    expect(sumOf(customers.taken, lines), list).toMatchObject({ rows: customers.taken.size, missing: [], wrong: [] });
  expect(await workspace.records(), 'copies that relays have sent again').toBeGreaterThan(3 * customers.taken.size);
}, 120_000);
