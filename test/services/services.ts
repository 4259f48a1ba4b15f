import { composeObstacle, startComposeServices, type ComposeService } from './compose.js';
import { startEmbeddedKafka, type EmbeddedKafka, type EmbeddedKafkaOptions } from './embedded-kafka.js';
import {
  startEmbeddedPostgres,
  type EmbeddedPostgresOptions,
  type EmbeddedPostgresServer,
} from './embedded-postgres.js';
import { givenServices } from './given-services.js';
import { javaObstacle } from './java.js';
import { kafkaJarsObstacle } from './kafka-jars.js';
import { RunFolder } from './run-folder.js';

export { startEmbeddedKafka, EmbeddedKafka, type EmbeddedKafkaOptions } from './embedded-kafka.js';
export { startEmbeddedPostgres, EmbeddedPostgresServer, type EmbeddedPostgresOptions } from './embedded-postgres.js';

export type Origin = 'environment' | 'compose' | 'embedded';

export interface ServicesOptions {
  /** Where KAFKA_BROKERS and DATABASE_URL are looked for. Default `process.env`. */
  env?: NodeJS.ProcessEnv;
  /** For an embedded Kafka; others are used as they are. Default one broker. */
  kafka?: Omit<EmbeddedKafkaOptions, 'runFolder'>;
  /** For an embedded PostgreSQL; others are used as they are. */
  postgres?: Omit<EmbeddedPostgresOptions, 'runFolder'>;
}

export interface Services {
  /** `host:port` of each broker. */
  brokers: string[];
  databaseUrl: string;
  /** Only when it is embedded: a Kafka that was given cannot be killed. */
  kafka?: EmbeddedKafka;
  /** Only when it is embedded. */
  postgres?: EmbeddedPostgresServer;
  origin: { kafka: Origin; postgres: Origin };
  /** Ends what was started, and nothing else. */
  stop(): Promise<void>;
}

/**
 * A Kafka and a PostgreSQL for development and tests: the ones that `KAFKA_BROKERS` and `DATABASE_URL` name (each on its
 * own), else docker-compose.yml if a container engine answers, else an embedded pair.
 * Whatever was started ends with `stop()` and with this process, also by SIGKILL.
 * Throws one error that names the three ways if none is open.
 */
export async function findOrStartServices(options: ServicesOptions = {}): Promise<Services> {
  const given = await givenServices(options.env ?? process.env);
  const wanted: ComposeService[] = [];
  if (!given.brokers) wanted.push('kafka');
  if (!given.databaseUrl) wanted.push('postgres');
  if (wanted.length === 0) return describe(given, {}, 'environment', () => Promise.resolve());

  const way = await chooseWay(wanted);
  const runFolder = await RunFolder.open();
  try {
    const started =
      way === 'compose' ? await startComposeServices(runFolder, wanted) : await startPair(runFolder, wanted, options);
    return describe(given, started, way, () => runFolder.close());
  } catch (error) {
    await runFolder.close();
    throw error;
  }
}

type Found = Partial<Pick<Services, 'brokers' | 'databaseUrl' | 'kafka' | 'postgres'>>;

function describe(given: Found, started: Found, way: Origin, stop: () => Promise<void>): Services {
  return {
    ...started,
    brokers: given.brokers ?? started.brokers ?? [],
    databaseUrl: given.databaseUrl ?? started.databaseUrl ?? '',
    origin: {
      kafka: given.brokers ? 'environment' : way,
      postgres: given.databaseUrl ? 'environment' : way,
    },
    stop,
  };
}

async function chooseWay(wanted: ComposeService[]): Promise<'compose' | 'embedded'> {
  const noEngine = await composeObstacle();
  if (noEngine === undefined) return 'compose';
  const noPair = await embeddedObstacle(wanted);
  if (noPair === undefined) return 'embedded';
  const unset = wanted.map((service) => (service === 'kafka' ? 'KAFKA_BROKERS' : 'DATABASE_URL')).join(' and ');
  throw new Error(
    `No services can be found or started: ${unset} not set, no container engine can be used (${noEngine}), ` +
      `and nothing can be embedded (${noPair}). Do one of these:\n` +
      `  1. Set KAFKA_BROKERS=host:port and DATABASE_URL=postgres://user:password@host:port/database to services of your own.\n` +
      `  2. Start a container engine with Docker Compose; docker-compose.yml is then used.\n` +
      `  3. Install a Java runtime 17 or newer and Maven, on Linux or macOS; Kafka and PostgreSQL are then started embedded.`,
  );
}

async function embeddedObstacle(wanted: ComposeService[]): Promise<string | undefined> {
  if (process.platform === 'win32') return 'the embedded pair needs Linux or macOS';
  if (!wanted.includes('kafka')) return undefined;
  return (await javaObstacle()) ?? (await kafkaJarsObstacle());
}

async function startPair(runFolder: RunFolder, wanted: ComposeService[], options: ServicesOptions): Promise<Found> {
  const [kafka, postgres] = await Promise.all([
    wanted.includes('kafka') ? startEmbeddedKafka({ ...options.kafka, runFolder }) : undefined,
    wanted.includes('postgres') ? startEmbeddedPostgres({ ...options.postgres, runFolder }) : undefined,
  ]);
  return {
    ...(kafka && { kafka, brokers: kafka.brokers }),
    ...(postgres && { postgres, databaseUrl: postgres.databaseUrl }),
  };
}
