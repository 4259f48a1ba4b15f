import { findOrStartServices, type Services } from './services.js';

// vitest's globalSetup: one pair for the whole run. The workers are forked later and inherit the variables.
let services: Services | undefined;

export async function setup(): Promise<void> {
  services = await findOrStartServices();
  process.env['KAFKA_BROKERS'] = services.brokers.join(',');
  process.env['DATABASE_URL'] = services.databaseUrl;
}

export async function teardown(): Promise<void> {
  if (services?.origin.kafka !== 'environment') delete process.env['KAFKA_BROKERS'];
  if (services?.origin.postgres !== 'environment') delete process.env['DATABASE_URL'];
  await services?.stop();
}
