import { Logger } from '@nestjs/common';
import { Kafka, logLevel, Partitioners, type KafkaConfig, type logCreator, type Producer } from 'kafkajs';

/** A kafkajs client of our own for each purpose: what one of them does to its connections or metadata never disturbs another. */
export function kafkaClient(config: KafkaConfig): Kafka {
  return new Kafka(config.logCreator === undefined ? { ...config, logCreator: nestLogCreator } : config);
}

/** Acknowledged by all replicas, written once even if a send is repeated. */
export function replyProducer(kafka: Kafka): Producer {
  return kafka.producer({
    createPartitioner: Partitioners.DefaultPartitioner,
    allowAutoTopicCreation: false,
    idempotent: true,
    maxInFlightRequests: 1,
  });
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
