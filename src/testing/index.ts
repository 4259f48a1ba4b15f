// The test kit: a bad network between your application and its services, and waiting for what happens then.
export { startKafkaProxy, type ArmedKafkaFault, type KafkaProxy, type KafkaProxyOptions } from './kafka-proxy.js';
export { startPostgresProxy, type PostgresProxy, type PostgresProxyOptions } from './postgres-proxy.js';
export type { Direction } from './faulty-pipe.js';
export type { ArmedCut, NetworkProxy } from './network-proxy.js';
export type { ArmedFault, FaultHit, Matcher } from './postgres-faults.js';
export type { ErrorFields } from './postgres-wire.js';
export { until, type UntilOptions } from './until.js';
