import { setTimeout as sleep } from 'node:timers/promises';
import { freePort } from '#src/testing/free-port.js';
import { until } from 'nestjs-kafka-idempotency/testing';
import { findOrStartServices, type Services } from '../../../test/services/services.js';
import { closeAll, type Closing } from '../../demo/closings.js';
import { kafkaLoggingTo, type LogFile } from '../../demo/log-file.js';
import { count } from '../../demo/report.js';
import { Customers } from './customers.js';
import { killAtRandom } from './kills.js';
import type { ChoreographyResult } from './report.js';
import { Service } from './service.js';
import { centsOf, sumOf } from './sums.js';
import { SERVICES, Workspace, type ServiceName } from './workspace.js';

const SHORT_SESSION_MS = 1_500;
const LEAST_FLOW_MS = 25_000;
/** Each service is to be killed a few times, and needs a session to be missed. */
const FLOW_SESSIONS = 10;
const MOST_ORDERS_PER_SECOND = 100;
const SHOW_MS = 2_500;
const STALLED_MS = 45_000;

export interface Surroundings {
  readonly log: LogFile;
  readonly say: (text: string) => void;
  /** Aborts when the run shall end at once; its reason is then what the run rejects with. */
  readonly end: AbortController;
}

export interface ChoreographyRun {
  readonly result: ChoreographyResult;
  /** What a good run has none of, beside the sums. */
  readonly faults: readonly string[];
}

/** One run, from the services to the sums. Everything it started is gone when it settles, however it ends. */
export async function runChoreography(orders: number, around: Surroundings): Promise<ChoreographyRun> {
  const { log, say, end } = around;
  const closings: Closing[] = [];
  try {
    // 1. Kafka and PostgreSQL, and in them a place of this run's own.
    say('Looking for Kafka and PostgreSQL, or starting them …');
    const services = await findOrStartServices();
    closings.push(() => services.stop());
    end.signal.throwIfAborted();
    say(`  Kafka ${services.origin.kafka}, PostgreSQL ${services.origin.postgres}`);
    const workspace = await Workspace.create(services, kafkaLoggingTo(log, services));
    closings.push(() => workspace.close());

    // 2. The two services.
    say('Starting the shop and the warehouse …');
    const sessionMs = Math.max(SHORT_SESSION_MS, await workspace.leastSessionMs());
    const port = await freePort();
    const pair = SERVICES.map((name) => serviceOn(name, { workspace, services, sessionMs, port, around }));
    closings.push(() => Promise.all(pair.map((service) => service.kill())));
    for (const service of pair) service.start();
    await until(() => end.signal.aborted || pair.every(({ hasPartitions }) => hasPartitions), {
      what: 'both services to have their partitions',
      timeoutMs: 60_000,
    });
    end.signal.throwIfAborted();

    // 3. Orders, with somebody killed all the time.
    const customers = new Customers(`http://127.0.0.1:${port}`);
    const flowMs = Math.max(LEAST_FLOW_MS, FLOW_SESSIONS * sessionMs, (orders / MOST_ORDERS_PER_SECOND) * 1_000);
    say(
      `${count(orders)} orders in ${Math.round(flowMs / 1_000)} s. Both services are killed at random and started again.`,
    );
    const progress = progressOf({ orders, customers, pair, workspace });
    const showing = setInterval(() => void progress().then(say, () => undefined), SHOW_MS); // it is shown again
    closings.push(async () => clearInterval(showing));
    await orderUnderKills({ orders, customers, flowMs, pair, sessionMs, signal: end.signal });
    const isComplete = await untilNothingMoves(workspace, progress, end.signal);
    clearInterval(showing);
    say(await progress());

    // 4. Nobody writes any more, and both databases are asked.
    const stops = await Promise.all(pair.map((service) => service.stop()));
    const result = await resultOf({ workspace, customers, pair });
    return {
      result,
      faults: [
        ...(isComplete ? [] : [`Something was left: nothing has moved for ${STALLED_MS / 1_000} s.`]),
        ...(stops.every(Boolean) ? [] : ['A service that was asked to stop did not, or not in time, or failed at it.']),
      ],
    };
  } catch (error) {
    throw end.signal.aborted ? end.signal.reason : error;
  } finally {
    end.abort(); // what is still under way when a step fails
    await closeAll(closings, log);
  }
}

interface On {
  readonly workspace: Workspace;
  readonly services: Services;
  readonly sessionMs: number;
  readonly port: number;
  readonly around: Surroundings;
}

function serviceOn(name: ServiceName, { workspace, services, sessionMs, port, around: { log, end } }: On): Service {
  const env = {
    ...process.env,
    KAFKA_BROKERS: services.brokers.join(','),
    KAFKA_PREFIX: workspace.prefix,
    DATABASE_URL: services.databaseUrl,
    DATABASE_SCHEMA: workspace.schemaOf(name),
    SESSION_MS: String(sessionMs),
    PORT: String(port),
    NO_COLOR: '1',
  };
  return new Service({ name, env, log, lost: (error) => end.abort(error) });
}

interface Disturbed {
  readonly orders: number;
  readonly customers: Customers;
  readonly flowMs: number;
  readonly pair: readonly Service[];
  readonly sessionMs: number;
  readonly signal: AbortSignal;
}

async function orderUnderKills({ orders, customers, flowMs, pair, sessionMs, signal }: Disturbed): Promise<void> {
  const ordered = new AbortController();
  const flowing = AbortSignal.any([signal, ordered.signal]);
  await Promise.all([
    customers.orderAll(orders, flowMs, signal).finally(() => ordered.abort()),
    ...pair.map((service) => killAtRandom(service, sessionMs, flowing)),
  ]);
}

interface Watched {
  readonly orders: number;
  readonly customers: Customers;
  readonly pair: readonly Service[];
  readonly workspace: Workspace;
}

function progressOf({ orders, customers, pair, workspace }: Watched): () => Promise<string> {
  const startedAt = performance.now();
  return async () => {
    const { payments, shipments, shipped } = await workspace.lines();
    const seconds = ((performance.now() - startedAt) / 1_000).toFixed(0).padStart(3);
    const kills = pair.map((service) => `${service.name} killed ${service.kills}×`).join(', ');
    return `  ${seconds} s  ${count(customers.taken.size)} of ${count(orders)} ordered, ${count(payments.length)} paid, ${count(shipments.length)} sent off, ${count(shipped.length)} back in the shop; ${kills}`;
  };
}

/** Until all is sent and committed: gives true. Gives false when before that nothing has moved for long. */
async function untilNothingMoves(
  workspace: Workspace,
  progress: () => Promise<string>,
  signal: AbortSignal,
): Promise<boolean> {
  let seen = '';
  for (let movedAt = performance.now(); performance.now() - movedAt < STALLED_MS;) {
    const left = await workspace.left();
    if (left === 0) return true;
    const now = `${left} ${(await progress()).slice(8)}`; // without its time
    if (now !== seen) movedAt = performance.now();
    seen = now;
    await sleep(250, undefined, { signal });
  }
  return false;
}

async function resultOf({ workspace, customers, pair }: Omit<Watched, 'orders'>): Promise<ChoreographyResult> {
  const { taken, repeated } = customers;
  const { orders, payments, shipments, shipped } = await workspace.lines();
  const [shop, warehouse] = pair.map(({ kills }) => kills);
  return {
    taken: taken.size,
    cents: centsOf(taken.values()),
    repeated,
    orders: sumOf(taken, orders),
    payments: sumOf(taken, payments),
    shipments: sumOf(taken, shipments),
    shipped: sumOf(taken, shipped),
    records: await workspace.records(),
    kills: { shop: shop!, warehouse: warehouse! },
    skipped: pair.reduce((sum, { skipped }) => sum + skipped, 0),
  };
}
