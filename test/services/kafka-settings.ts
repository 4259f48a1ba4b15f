export interface NodeSettings {
  id: number;
  port: number;
  controllerPort: number;
  /** A second listener for clients that go through a proxy: it listens on `port` and tells clients to come by `advertisedPort`. */
  proxied?: { port: number; advertisedPort: number } | undefined;
  quorum: string;
  size: number;
  dataFolder: string;
  /** Settings that win over the ones here. */
  settings: Record<string, string | number>;
}

/** The server.properties of one node that is broker and controller. */
export function brokerProperties(node: NodeSettings): string {
  const properties = {
    ...identity(node),
    ...internalTopics(node.size),
    ...quickReactions(),
    ...smallFootprint(),
    'auto.create.topics.enable': 'false',
    ...node.settings,
  };
  return Object.entries(properties)
    .map(([name, value]) => `${name}=${value}\n`)
    .join('');
}

function identity({
  id,
  port,
  controllerPort,
  proxied,
  quorum,
  dataFolder,
}: NodeSettings): Record<string, string | number> {
  const listeners = [`PLAINTEXT://127.0.0.1:${port}`, `CONTROLLER://127.0.0.1:${controllerPort}`];
  const advertised = [`PLAINTEXT://127.0.0.1:${port}`];
  if (proxied) {
    listeners.push(`PROXIED://127.0.0.1:${proxied.port}`);
    advertised.push(`PROXIED://127.0.0.1:${proxied.advertisedPort}`);
  }
  return {
    'process.roles': 'broker,controller',
    'node.id': id,
    'controller.quorum.voters': quorum,
    'controller.listener.names': 'CONTROLLER',
    listeners: listeners.join(),
    'advertised.listeners': advertised.join(),
    'listener.security.protocol.map': 'PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,PROXIED:PLAINTEXT',
    'inter.broker.listener.name': 'PLAINTEXT',
    'log.dirs': dataFolder,
  };
}

/** On one node the default of three replicas would leave groups and transactions waiting for ever. */
function internalTopics(size: number): Record<string, string | number> {
  const minInSync = size === 1 ? 1 : 2;
  return {
    'default.replication.factor': size,
    'offsets.topic.replication.factor': size,
    'offsets.topic.num.partitions': 4,
    'transaction.state.log.replication.factor': size,
    'transaction.state.log.min.isr': minInSync,
    'transaction.state.log.num.partitions': 4,
    'share.coordinator.state.topic.replication.factor': size,
    'share.coordinator.state.topic.min.isr': minInSync,
    'share.coordinator.state.topic.num.partitions': 4,
  };
}

/** Tests kill members and brokers often: at the defaults (sessions of at least 6 s, brokers missed after 9 s) a group would get nowhere. */
function quickReactions(): Record<string, string | number> {
  return {
    'group.min.session.timeout.ms': 500,
    'group.initial.rebalance.delay.ms': 0,
    'broker.session.timeout.ms': 3_000,
    'broker.heartbeat.interval.ms': 500,
  };
}

/** A heap of 512 MB, two cores, topics that live for seconds. */
function smallFootprint(): Record<string, string | number> {
  return {
    'log.cleaner.dedupe.buffer.size': 8_388_608,
    'num.network.threads': 2,
    'num.io.threads': 4,
    'file.delete.delay.ms': 1_000,
  };
}
