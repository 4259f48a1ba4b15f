// npm run sample: finds or starts Kafka and PostgreSQL, then runs sample/01-orders on them until Ctrl-C.
import { fork, type ChildProcess } from 'node:child_process';
import { once } from 'node:events';
import { fileURLToPath } from 'node:url';
import { Kafka, logLevel } from 'kafkajs';
import { freePort } from '#src/testing/free-port.js';
import { findOrStartServices } from '../test/services/services.js';
import { until } from 'nestjs-kafka-idempotency/testing';
import { ORDERS_CREATED } from './01-orders/settings.js';

const stop = new AbortController();
// Not once: npm passes Ctrl-C on a second time, which must not interrupt the clearing up.
for (const signal of ['SIGINT', 'SIGTERM', 'SIGHUP'] as const) process.on(signal, () => stop.abort());

console.log('Looking for Kafka and PostgreSQL, or starting them …');
const services = await findOrStartServices();
try {
  if (!stop.signal.aborted) await runSample();
} finally {
  await services.stop();
}

async function runSample(): Promise<void> {
  await createTopic();
  const port = Number(process.env['PORT'] ?? (await freePort()));
  const app = startApp(port);
  const ended = once(app, 'exit');
  stop.signal.addEventListener('abort', () => app.kill('SIGTERM'), { once: true });
  const url = `http://localhost:${port}`;
  const isReady = until(async () => hasEnded(app) || (await fetch(`${url}/health`)).ok, {
    what: `the sample to answer at ${url}/health`,
    timeoutMs: 30_000,
  });
  try {
    await Promise.race([isReady, ended]);
    if (!hasEnded(app) && !stop.signal.aborted) console.log(whatToTry(url));
    const [code] = (await ended) as [number | null];
    if (!stop.signal.aborted) process.exitCode = code ?? 1; // it ended by itself
  } finally {
    app.kill('SIGKILL');
  }
}

async function createTopic(): Promise<void> {
  const admin = new Kafka({ clientId: 'sample', brokers: services.brokers, logLevel: logLevel.NOTHING }).admin();
  await admin.connect();
  await admin.createTopics({ topics: [{ topic: ORDERS_CREATED, numPartitions: 6 }], waitForLeaders: true });
  await admin.disconnect();
}

/** In a process group of its own, so that Ctrl-C comes to it from here, once. It ends with this process however this one ends. */
function startApp(port: number): ChildProcess {
  return fork(fileURLToPath(new URL('01-orders/main.js', import.meta.url)), {
    execArgv: ['--import', new URL('end-with-parent.js', import.meta.url).href],
    env: {
      ...process.env,
      KAFKA_BROKERS: services.brokers.join(','),
      DATABASE_URL: services.databaseUrl,
      PORT: String(port),
    },
    detached: true,
  });
}

function hasEnded(app: ChildProcess): boolean {
  return app.exitCode !== null || app.signalCode !== null;
}

function whatToTry(url: string): string {
  return `
The sample is ready. Try, in another terminal:

  # Order, and order again under the same id, as a client does that got no answer:
  curl -s ${url}/orders -H 'content-type: application/json' -d '{ "id": "2f1f1c9e-0b0e-4a57-8a60-3d5f7c1c8a11", "customer": "ada", "cents": 1999 }'
  curl -s ${url}/orders -H 'content-type: application/json' -d '{ "id": "2f1f1c9e-0b0e-4a57-8a60-3d5f7c1c8a11", "customer": "ada", "cents": 1999 }'

  # One payment:
  curl -s ${url}/orders/2f1f1c9e-0b0e-4a57-8a60-3d5f7c1c8a11/payments

  # An order that does not pass validation, and how the consumer is doing:
  curl -s ${url}/orders -H 'content-type: application/json' -d '{ "customer": "ada", "cents": -1 }'
  curl -s ${url}/health

The services, for a look inside:
  KAFKA_BROKERS=${services.brokers.join(',')}
  DATABASE_URL=${services.databaseUrl}

Ctrl-C stops everything that was started.
`;
}
