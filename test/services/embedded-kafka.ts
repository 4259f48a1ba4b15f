import { randomBytes } from 'node:crypto';
import { freePorts } from '#src/testing/free-port.js';
import { kafkaJars } from './kafka-jars.js';
import { KafkaNode } from './kafka-node.js';
import { RunFolder } from './run-folder.js';

export interface EmbeddedKafkaOptions {
  /** Nodes, each broker and controller at once. With 3, topics can be replicated and a broker can be killed. Default 1. */
  brokers?: 1 | 3;
  /** Further broker settings, such as `{ 'message.max.bytes': 2000 }`. They win over ours. Default none. */
  settings?: Record<string, string | number>;
  /**
   * Ports of proxies, one for each node. Each node then listens at `node.proxiedPort` too, where it names the proxies'
   * ports as those of the cluster: clients that come by a proxy stay behind the proxies. Default none.
   */
  proxyPorts?: number[];
  /** Folder to live in. Default one of its own, gone with `close()`. */
  runFolder?: RunFolder;
}

/** A new, empty Apache Kafka (KRaft, on the JVM) on free loopback ports. */
export async function startEmbeddedKafka(options: EmbeddedKafkaOptions = {}): Promise<EmbeddedKafka> {
  const jars = await kafkaJars();
  const runFolder = options.runFolder ?? (await RunFolder.open());
  try {
    return await EmbeddedKafka.create(runFolder, jars, options);
  } catch (error) {
    if (!options.runFolder) await runFolder.close();
    throw error;
  }
}

const START_TRIES = 3;

/**
 * An Apache Kafka of one or three nodes that a test may stop, kill, freeze and start again, as a whole or by node.
 *
 * - Ports, data and `brokers` stay the same over every stop, kill and start.
 * - It ends with `close()`, and in any case with this process.
 */
export class EmbeddedKafka {
  private closing: Promise<void> | undefined;

  private constructor(
    private readonly runFolder: RunFolder,
    private readonly ownsFolder: boolean,
    readonly nodes: readonly KafkaNode[],
  ) {}

  /** Use `startEmbeddedKafka`. */
  static async create(runFolder: RunFolder, jars: string, options: EmbeddedKafkaOptions): Promise<EmbeddedKafka> {
    for (let tries = 1; ; tries++) {
      const nodes = await layNodes(runFolder, jars, options);
      const kafka = new EmbeddedKafka(runFolder, !options.runFolder, nodes);
      try {
        await Promise.all(nodes.map((node) => node.format()));
        await kafka.start();
        return kafka;
      } catch (error) {
        await kafka.kill();
        // The ports were free a moment ago; if somebody took one since, all is laid anew on others.
        const taken = await Promise.all(nodes.map((node) => node.lostItsPort()));
        if (tries === START_TRIES || !taken.includes(true)) throw error;
      }
    }
  }

  /** `host:port` of every node, for `new Kafka({ brokers })`. */
  get brokers(): string[] {
    return this.nodes.map((node) => node.address);
  }

  /** The node with this id, as metadata and admin answers name it. */
  node(id: number): KafkaNode {
    const node = this.nodes.find((each) => each.id === id);
    if (!node)
      throw new Error(`There is no node ${id}; the nodes are ${this.nodes.map((each) => each.id).join(', ')}.`);
    return node;
  }

  /** Resolves when every node is in the cluster and answers. */
  async start(): Promise<void> {
    await Promise.all(this.nodes.map((node) => node.start()));
  }

  /** Graceful. All at once: in turn, the last one would wait in vain for a quorum to hand its partitions over to. */
  async stop(): Promise<void> {
    await Promise.all(this.nodes.map((node) => node.stop()));
  }

  /** SIGKILL for every node. */
  async kill(): Promise<void> {
    await Promise.all(this.nodes.map((node) => node.kill()));
  }

  async restart(): Promise<void> {
    await this.stop();
    await this.start();
  }

  /** SIGSTOP for every node: connections stay open, nothing answers. */
  pause(): void {
    for (const node of this.nodes) node.pause();
  }

  resume(): void {
    for (const node of this.nodes) node.resume();
  }

  /** Ends all nodes and removes their data. */
  close(): Promise<void> {
    this.closing ??= this.ownsFolder ? this.runFolder.close() : this.kill();
    return this.closing;
  }
}

async function layNodes(runFolder: RunFolder, jars: string, options: EmbeddedKafkaOptions): Promise<KafkaNode[]> {
  const size = options.brokers ?? 1;
  const ports = await freePorts(size * 3);
  const nodes = Array.from({ length: size }, (_, index) => {
    const [port, controllerPort, proxiedPort] = ports.slice(index * 3) as [number, number, number];
    const advertisedPort = options.proxyPorts?.[index];
    const proxied = advertisedPort === undefined ? undefined : { port: proxiedPort, advertisedPort };
    return { id: index + 1, port, controllerPort, proxied };
  });
  const quorum = nodes.map(({ id, controllerPort }) => `${id}@127.0.0.1:${controllerPort}`).join();
  const cluster = { id: clusterId(), size, quorum };
  return nodes.map((node) => new KafkaNode({ ...node, cluster, runFolder, jars, settings: { ...options.settings } }));
}

/** 16 bytes in base64url. Never one that begins with a dash: StorageTool would take it for an option. */
function clusterId(): string {
  const bytes = randomBytes(16);
  bytes[0] = (bytes[0] as number) & 0x7f;
  return bytes.toString('base64url');
}
