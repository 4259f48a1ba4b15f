import { randomBytes } from 'node:crypto';
import { readFile, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { Kafka, logLevel } from 'kafkajs';
import { java } from './java.js';
import { brokerProperties } from './kafka-settings.js';
import { packageRoot } from './package-root.js';
import type { RunFolder } from './run-folder.js';
import type { ServiceProcess } from './service-process.js';
import { until } from 'nestjs-kafka-idempotency/testing';

export interface KafkaNodeFacts {
  id: number;
  port: number;
  controllerPort: number;
  proxied?: { port: number; advertisedPort: number } | undefined;
  cluster: { id: string; size: number; quorum: string };
  runFolder: RunFolder;
  jars: string;
  settings: Record<string, string | number>;
}

/** One broker and controller. Port and data stay the same over every stop, kill and start. */
export class KafkaNode {
  private server: ServiceProcess | undefined;
  private starting: Promise<void> | undefined;
  private folder = '';

  constructor(private readonly facts: KafkaNodeFacts) {}

  get id(): number {
    return this.facts.id;
  }

  get port(): number {
    return this.facts.port;
  }

  get address(): string {
    return `127.0.0.1:${this.port}`;
  }

  /** Where a proxy has to connect to, if the node was started with `proxyPorts`. */
  get proxiedPort(): number | undefined {
    return this.facts.proxied?.port;
  }

  /** What the broker logs at level WARN and above. */
  get logFile(): string {
    return join(this.folder, 'server.log');
  }

  get isRunning(): boolean {
    return this.server?.isRunning ?? false;
  }

  get pid(): number | undefined {
    return this.isRunning ? this.server?.pid : undefined;
  }

  /** Lays the node's folder and settings. Called once, before the first start. */
  async format(): Promise<void> {
    const { runFolder, id, port, controllerPort, proxied, cluster, settings } = this.facts;
    this.folder = await runFolder.makeFolder(`kafka-${id}-${randomBytes(3).toString('hex')}`);
    const properties = brokerProperties({
      id,
      port,
      controllerPort,
      proxied,
      quorum: cluster.quorum,
      size: cluster.size,
      dataFolder: join(this.folder, 'data'),
      settings,
    });
    await writeFile(this.propertiesFile, properties);
    // Compiling well costs more than it gives in a program of a second.
    const format = this.spawnJava(
      ['-Xmx128m', '-XX:TieredStopAtLevel=1', '-XX:+UseSerialGC'],
      'kafka.tools.StorageTool',
      ['format', '--cluster-id', cluster.id, '--config', this.propertiesFile],
    );
    const { code, signal } = await format.ended();
    if (code !== 0) throw new Error(`Kafka's StorageTool failed (${code ?? signal}): ${await this.tail()}`);
  }

  /** Resolves when the node is in the cluster and answers. */
  start(): Promise<void> {
    this.starting ??= this.launch().finally(() => (this.starting = undefined));
    return this.starting;
  }

  /** Graceful: the node hands its partitions over. One that cannot (no quorum is left) is killed after `deadlineMs`. */
  async stop(deadlineMs = 15_000): Promise<void> {
    await this.server?.stop('SIGTERM', deadlineMs);
  }

  /** SIGKILL. */
  async kill(): Promise<void> {
    await this.server?.kill();
  }

  async restart(): Promise<void> {
    await this.stop();
    await this.start();
  }

  /** SIGSTOP: connections stay open, nothing answers. */
  pause(): void {
    this.server?.pause();
  }

  resume(): void {
    this.server?.resume();
  }

  /** True if the last start failed because another program has the port. */
  async lostItsPort(): Promise<boolean> {
    const log = await readFile(this.logFile, 'utf8').catch(() => '');
    return log.includes('Address already in use');
  }

  private async launch(): Promise<void> {
    if (this.isRunning) return;
    const server = this.spawnJava(['-Xmx512m', '-XX:+ExitOnOutOfMemoryError'], 'kafka.Kafka', [this.propertiesFile]);
    this.server = server;
    await until(async () => !server.isRunning || (await this.isInCluster()), {
      what: `Kafka node ${this.id} on port ${this.port} to answer`,
      timeoutMs: 60_000,
      intervalMs: 50,
    });
    if (!server.isRunning) {
      const { code, signal } = await server.ended();
      throw new Error(`Kafka node ${this.id} ended at its start (${code ?? signal}): ${await this.tail()}`);
    }
  }

  /** Asks this node alone, since the others may be up already. */
  private async isInCluster(): Promise<boolean> {
    const kafka = new Kafka({
      brokers: [this.address],
      logLevel: logLevel.NOTHING,
      connectionTimeout: 1_000,
      requestTimeout: 3_000,
      retry: { retries: 0 },
    });
    const admin = kafka.admin();
    try {
      await admin.connect();
      const { brokers } = await admin.describeCluster();
      return brokers.some(({ nodeId }) => nodeId === this.id);
    } finally {
      await admin.disconnect();
    }
  }

  private spawnJava(flags: string[], mainClass: string, args: string[]): ServiceProcess {
    const log4j = join(packageRoot(), 'test/services/kafka/log4j2.properties');
    const properties = {
      'java.io.tmpdir': this.folder,
      'java.awt.headless': 'true',
      'log4j2.configurationFile': log4j,
      'kafka.log.file': this.logFile,
      'kafka.log.level': 'WARN',
    };
    return this.facts.runFolder.spawn({
      command: java(),
      args: [
        ...flags,
        // Else a killed JVM leaves its hsperfdata file in the system's temp folder.
        '-XX:-UsePerfData',
        ...Object.entries(properties).map(([name, value]) => `-D${name}=${value}`),
        '-cp',
        join(this.facts.jars, '*'),
        mainClass,
        ...args,
      ],
      log: join(this.folder, 'console.log'),
      cwd: this.folder,
    });
  }

  private get propertiesFile(): string {
    return join(this.folder, 'server.properties');
  }

  private async tail(): Promise<string> {
    const console = await readFile(join(this.folder, 'console.log'), 'utf8').catch(() => '');
    const log = await readFile(this.logFile, 'utf8').catch(() => '');
    return [...console.trimEnd().split('\n').slice(-10), ...log.trimEnd().split('\n').slice(-10)].join('\n');
  }
}
