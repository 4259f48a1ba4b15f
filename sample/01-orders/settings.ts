/** From the environment, as in any service. `npm run sample` sets the first two to the services it found or started. */
export const BROKERS = (process.env['KAFKA_BROKERS'] ?? 'localhost:9092').split(',');
export const PORT = Number(process.env['PORT'] ?? 3000);
/** The topic of orders. The producer and the handler have to agree on it. */
export const ORDERS_CREATED = process.env['ORDERS_TOPIC'] ?? 'orders.created';
