/** From the environment, as in any service. Each service of this sample has a database, or a schema, of its own. */
export const BROKERS = (process.env['KAFKA_BROKERS'] ?? 'localhost:9092').split(',');
export const DATABASE_URL = process.env['DATABASE_URL'] ?? 'postgres://postgres:postgres@localhost:5432/postgres';
/** Where the service's tables stand. */
export const SCHEMA = process.env['DATABASE_SCHEMA'] ?? 'public';
export const PORT = Number(process.env['PORT'] ?? 3000);
/** In front of the names of topics and groups, where several share a cluster. */
export const PREFIX = process.env['KAFKA_PREFIX'] ?? '';
/**
 * A process that was killed is missed after that time: by its consumer group, and by the relay that takes over its shards. The demo, which kills all the time, shortens
 * it.
 */
export const SESSION_MS = Number(process.env['SESSION_MS'] ?? 15_000);

export const ORDERS_CREATED = `${PREFIX}orders.created`;
export const PAYMENTS_CAPTURED = `${PREFIX}payments.captured`;
export const SHIPMENTS_CREATED = `${PREFIX}shipments.created`;
