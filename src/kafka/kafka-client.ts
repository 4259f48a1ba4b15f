import { Logger } from '@nestjs/common';
import { Kafka, logLevel, type KafkaConfig, type logCreator } from 'kafkajs';
import { hideAborted } from './aborted-records.js';
import { lookAtFetched } from './fetched-partitions.js';
import { SilentBrokers } from './silent-brokers.js';

/**
 * Makes a kafkajs client of our own for each purpose: what one of them does to its connections or metadata never disturbs another. What one learns of a broker that takes
 * connections and never answers, all of them know. Each begins with another of the brokers, so that they are not all at one.
 */
export type NewKafka = () => Kafka;

export function kafkaClients(config: KafkaConfig): NewKafka {
  const { brokers, logCreator = nestLogCreator } = config;
  const silent = new SilentBrokers(config);
  return () => {
    const kafka = new Kafka({
      ...config,
      brokers: Array.isArray(brokers) ? silent.inOrder(rotated(brokers)) : brokers,
      logCreator,
      socketFactory: silent.socketFactory,
    });
    lookAtFetched(kafka, (_, fetched) => hideAborted(fetched));
    return kafka;
  };
}

function rotated(brokers: readonly string[]): string[] {
  const first = Math.floor(Math.random() * brokers.length);
  return [...brokers.slice(first), ...brokers.slice(0, first)];
}

/**
 * kafkajs into Nest's logger. What it says at INFO (each pause and resume of a partition, each join) is our debug level; the transport logs the
 * joins itself.
 */
const nestLogCreator: logCreator = () => {
  const logger = new Logger('kafkajs');
  return ({ namespace, level, log }) => {
    const { message, error, groupId, broker } = log as { message: string } & Partial<
      Record<'error' | 'groupId' | 'broker', string>
    >;
    const facts = [error, broker && `broker ${broker}`, groupId && `group ${groupId}`].filter(Boolean).join(', ');
    const text = `${namespace === '' ? '' : `[${namespace}] `}${message}${facts === '' ? '' : ` (${facts})`}`;
    // Ours are thrown away at their first error, which is what the guarantee needs.
    if (message.startsWith('Limiting retries for the idempotent producer')) return logger.debug(text);
    // A refused request is told here at ERROR and then handled, or told again, by who sent it: each rebalance is refused heartbeats.
    if (namespace === 'Connection' && message.startsWith('Response ')) return logger.debug(text);
    switch (level) {
      case logLevel.ERROR:
        return logger.error(text);
      case logLevel.WARN:
        return logger.warn(text);
      default:
        return logger.debug(text);
    }
  };
};
