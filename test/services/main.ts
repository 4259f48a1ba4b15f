// npm run services: a Kafka and a PostgreSQL for as long as this runs.
import { findOrStartServices } from './services.js';

const stopped = new Promise<void>((resolve) => {
  // Keeps the process alive until a signal comes: the services themselves do not.
  const alive = setInterval(() => undefined, 2 ** 30);
  for (const signal of ['SIGINT', 'SIGTERM', 'SIGHUP'] as const) {
    // Not once: npm passes Ctrl-C on a second time, which must not interrupt the clearing up.
    process.on(signal, () => {
      clearInterval(alive);
      resolve();
    });
  }
});

const services = await findOrStartServices();
console.log(`KAFKA_BROKERS=${services.brokers.join(',')}`);
console.log(`DATABASE_URL=${services.databaseUrl}`);
console.error(
  `Kafka: ${services.origin.kafka}, PostgreSQL: ${services.origin.postgres}. Ctrl-C stops what was started.`,
);
await stopped;
await services.stop();
