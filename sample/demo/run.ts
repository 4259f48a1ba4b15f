import { findOrStartServices, type Services } from '../../test/services/services.js';
import type { DemoArguments } from './arguments.js';
import { closeAll, type Closing } from './closings.js';
import { demoRecords } from './events.js';
import { letFlow, STALLED_MS, type Flowed } from './flow.js';
import { readLedger } from './ledger.js';
import { kafkaLoggingTo, type LogFile } from './log-file.js';
import { paceFor, type Pace } from './pace.js';
import { DemoProducer } from './producer.js';
import { count, type DemoResult } from './report.js';
import type { Screen } from './screen.js';
import { Workers } from './workers.js';
import { Workspace } from './workspace.js';

const WORKERS = 3;

export interface DemoRun {
  readonly result: DemoResult;
  /** What a good run has none of, beside the figures. */
  readonly faults: readonly string[];
}

export interface Surroundings {
  readonly log: LogFile;
  readonly screen: Screen;
  /** Aborts when the run shall end at once; its reason is then what the run rejects with. */
  readonly end: AbortController;
}

/** One demo, from the services to the figures. Everything it started is gone when it settles, however it ends. */
export async function runDemo({ events }: DemoArguments, around: Surroundings): Promise<DemoRun> {
  const { log, screen, end } = around;
  const closings: Closing[] = [];
  try {
    // 1. Kafka and PostgreSQL, and in them a place of this run's own.
    screen.say('Looking for Kafka and PostgreSQL, or starting them …');
    const services = await findOrStartServices();
    closings.push(() => services.stop());
    end.signal.throwIfAborted();
    screen.say(`  Kafka ${services.origin.kafka}, PostgreSQL ${services.origin.postgres}`);
    const kafka = kafkaLoggingTo(log, services);
    const workspace = await Workspace.create(services, kafka);
    closings.push(() => workspace.close());

    // 2. Workers that have joined the group, and a producer.
    screen.say(`Starting ${WORKERS} workers …`);
    const records = demoRecords(events);
    const pace = paceFor(records.length, await workspace.leastSessionMs());
    const workers = workersOn(workspace, { services, pace, around });
    closings.push(() => workers.close('kill'));
    await workers.start(end.signal);
    const producer = new DemoProducer(kafka, workspace.topic, (error) => log.write(`A send failed: ${String(error)}`));
    await producer.connect();
    closings.push(() => producer.close());

    // 3. The flow, with somebody killed all the time, until the group has committed everything.
    const flowed = await letFlow({ records, events, pace, workspace, workers, producer, screen, signal: end.signal });

    // 4. Nobody writes any more, and the database is asked.
    const ends = await workers.close('stop');
    return {
      result: await resultOf({ workspace, workers, producer, log, since: flowed.since }),
      faults: [...faultsOf(flowed, ends)],
    };
  } catch (error) {
    throw end.signal.aborted ? end.signal.reason : error;
  } finally {
    end.abort(); // what is still under way when a step fails
    await closeAll(closings, log);
  }
}

function workersOn(
  { group, schema, topic }: Workspace,
  { services, pace, around }: { services: Services; pace: Pace; around: Surroundings },
): Workers {
  const { log, end } = around;
  const env = {
    ...process.env,
    KAFKA_BROKERS: services.brokers.join(','),
    DATABASE_URL: services.databaseUrl,
    ORDERS_TOPIC: topic,
    NO_COLOR: '1',
  };
  const launch = { settings: { group, schema, sessionMs: pace.sessionMs }, env, output: log.descriptor };
  return new Workers(launch, WORKERS, { lost: (error) => end.abort(error), log: (line) => log.write(line) });
}

interface Finished {
  readonly workspace: Workspace;
  readonly workers: Workers;
  readonly producer: DemoProducer;
  readonly log: LogFile;
  readonly since: Date;
}

async function resultOf({ workspace, workers, producer, log, since }: Finished): Promise<DemoResult> {
  const { ids, duplicates } = producer.acknowledged;
  const ledger = await readLedger(workspace.database, { ids, since }, (trace) => log.write(JSON.stringify(trace)));
  const { applied, lost, doubled, outOfOrder, seconds } = ledger;
  const perSecond = seconds > 0 ? Math.round((applied / seconds) * 10) / 10 : 0;
  const { kills, skipped } = workers;
  return { sent: ids.size, duplicates, applied, lost, doubled, outOfOrder, kills, skipped, perSecond };
}

function* faultsOf({ behind, stopped }: Flowed, ends: readonly string[]): Generator<string> {
  if (behind > 0)
    yield `${count(behind)} records were not handled: nothing moved for ${STALLED_MS / 1000} s, so what is missing counts as lost.`;
  const unclean = [stopped, ...ends].filter((end) => end !== undefined && end !== 'stopped').length;
  if (unclean > 0) yield `${unclean} of the workers that were asked to stop did not, or not in time, or failed at it.`;
}
