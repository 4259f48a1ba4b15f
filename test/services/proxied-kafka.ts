import { startKafkaProxy, type KafkaProxy } from 'nestjs-kafka-idempotency/testing';
import { freePorts } from '#src/testing/free-port.js';
import { startEmbeddedKafka, type EmbeddedKafka, type EmbeddedKafkaOptions } from './embedded-kafka.js';

export interface ProxiedKafka {
  readonly kafka: EmbeddedKafka;
  /** One in front of each node, in the order of `kafka.nodes`. */
  readonly proxies: readonly KafkaProxy[];
  /** `host:port` of every proxy: clients that are given these stay behind the proxies. */
  readonly brokers: string[];
  /** The proxy in front of the node with this id. */
  proxyOf(nodeId: number): KafkaProxy;
  close(): Promise<void>;
}

/** A new, empty Kafka with a proxy in front of each node. `kafka.brokers` are the ways past the proxies. */
export async function startProxiedKafka(options: Omit<EmbeddedKafkaOptions, 'proxyPorts'> = {}): Promise<ProxiedKafka> {
  const ports = await freePorts(options.brokers ?? 1);
  const kafka = await startEmbeddedKafka({ ...options, proxyPorts: ports });
  const proxies: KafkaProxy[] = [];
  const close = async (): Promise<void> => {
    await Promise.all(proxies.map((proxy) => proxy.close()));
    await kafka.close();
  };
  try {
    for (const [index, port] of ports.entries())
      proxies.push(await startKafkaProxy({ target: `127.0.0.1:${kafka.nodes[index]?.proxiedPort}`, port }));
  } catch (error) {
    await close();
    throw error;
  }
  return {
    kafka,
    proxies,
    brokers: proxies.map(({ address }) => address),
    proxyOf: (nodeId) => proxies[kafka.nodes.findIndex(({ id }) => id === nodeId)] as KafkaProxy,
    close,
  };
}
