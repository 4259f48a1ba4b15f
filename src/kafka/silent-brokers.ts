import { connect as connectTcp, isIP, type Socket } from 'node:net';
import { connect as connectTls } from 'node:tls';
import { Logger } from '@nestjs/common';
import { Kafka, logLevel, type ISocketFactory, type ISocketFactoryArgs, type KafkaConfig } from 'kafkajs';
import { within } from '../shared/within.js';

const TICK_MS = 500;
/** Without an answer, before the broker is asked. A join may wait for its answer as long as the slowest member takes. */
const SUSPICIOUS_MS = 2000;
/** The least time for its answer; more where a user's network needs more to connect. */
const PROBE_MS = 3000;
const DEFAULT_CONNECTION_TIMEOUT_MS = 1000;
const DISCONNECT_MS = 500;
const KEEP_ALIVE_MS = 60_000;
/** kafkajs's name for it: an answer too. */
const REFUSED_LOGIN = 'KafkaJSSASLAuthenticationError';

interface Connection {
  readonly socket: Socket;
  readonly broker: ISocketFactoryArgs;
  /** How much had been written when something was last read. */
  answered: number;
  /** Something written is waiting for its answer. */
  waitingSince: number | undefined;
}

/**
 * Brokers that take connections and answer nothing: frozen ones, and those behind a network that swallows. kafkajs waits for each request that it sent there,
 * a join for more than the rebalance timeout, while the cluster has chosen others long ago. So, for all clients that use this socket factory:
 * - who owes an answer for seconds is asked something small on a connection of its own;
 * - if that is not answered either, connections to it are cut, and kafkajs goes on as if the broker had died;
 * - until it answers again, new connections to it are refused.
 */
export class SilentBrokers {
  readonly #logger = new Logger('IdempotentKafkaServer');
  readonly #open: ISocketFactory;
  readonly #connections = new Set<Connection>();
  readonly #probing = new Set<string>();
  readonly #silent = new Map<string, ISocketFactoryArgs>();
  #timer: NodeJS.Timeout | undefined;

  constructor(private readonly config: KafkaConfig) {
    this.#open = config.socketFactory ?? openSocket;
  }

  /** Those that are known to be silent last. */
  inOrder(addresses: readonly string[]): string[] {
    return [
      ...addresses.filter((address) => !this.#silent.has(address)),
      ...addresses.filter((address) => this.#silent.has(address)),
    ];
  }

  readonly socketFactory: ISocketFactory = (broker) => {
    const address = addressOf(broker);
    if (this.#silent.has(address)) throw new Error(`${address} takes connections and does not answer`);
    const socket = this.#open(broker);
    const connection: Connection = { socket, broker, answered: 0, waitingSince: undefined };
    this.#connections.add(connection);
    socket.on('data', () => {
      connection.answered = socket.bytesWritten;
      connection.waitingSince = undefined;
    });
    socket.once('close', () => this.#connections.delete(connection));
    this.#timer ??= setInterval(() => this.#look(performance.now()), TICK_MS).unref();
    return socket;
  };

  #look(now: number): void {
    if (this.#connections.size === 0) return this.#rest();
    const suspects = new Map(this.#silent);
    for (const connection of this.#connections) {
      if (connection.socket.bytesWritten === connection.answered) continue;
      connection.waitingSince ??= now;
      if (now - connection.waitingSince >= SUSPICIOUS_MS) suspects.set(addressOf(connection.broker), connection.broker);
    }
    for (const broker of suspects.values()) void this.#probe(broker);
  }

  /** Nobody uses these brokers any more; what was known of them will be old when somebody does. */
  #rest(): void {
    clearInterval(this.#timer);
    this.#timer = undefined;
    this.#silent.clear();
  }

  async #probe(broker: ISocketFactoryArgs): Promise<void> {
    const address = addressOf(broker);
    if (this.#probing.has(address)) return;
    this.#probing.add(address);
    const begun = performance.now();
    const isAnswering = await this.#answers(broker);
    this.#probing.delete(address);
    if (isAnswering) this.#heard(address);
    else this.#cut(broker, begun);
  }

  #heard(address: string): void {
    if (this.#silent.delete(address)) this.#logger.log(`Broker ${address} answers again`);
    for (const connection of this.#connections)
      if (addressOf(connection.broker) === address) connection.waitingSince = undefined;
  }

  /** Those that were waiting before it was asked. */
  #cut(broker: ISocketFactoryArgs, asked: number): void {
    const address = addressOf(broker);
    const waiting = [...this.#connections].filter(
      ({ broker: other, waitingSince }) => addressOf(other) === address && (waitingSince ?? asked) < asked,
    );
    if (waiting.length === 0) return; // what it owed has come meanwhile
    if (!this.#silent.has(address))
      this.#logger.warn(
        `Broker ${address} takes connections and does not answer: connections to it are cut, and refused until it does`,
      );
    this.#silent.set(address, broker);
    for (const { socket } of waiting) socket.destroy(new Error(`${address} does not answer`));
  }

  /** Whether it tells its API versions, and lets us in, as to any client of this configuration. */
  async #answers(broker: ISocketFactoryArgs): Promise<boolean> {
    const sockets: Socket[] = [];
    const socketFactory: ISocketFactory = ({ onConnect }) => {
      const socket = this.#open({ ...broker, onConnect });
      sockets.push(socket);
      return socket;
    };
    const { retry, logCreator: _, ...config } = this.config;
    const kafka = new Kafka({
      ...config,
      brokers: [addressOf(broker)],
      socketFactory,
      logLevel: logLevel.NOTHING,
      retry: { ...retry, retries: 0 },
    });
    const patienceMs = Math.max(PROBE_MS, 3 * (config.connectionTimeout ?? DEFAULT_CONNECTION_TIMEOUT_MS));
    const admin = kafka.admin();
    let isAnswering = false;
    const asking = admin.connect().then(
      () => (isAnswering = true),
      (error: Error) => (isAnswering = error.name === REFUSED_LOGIN),
    );
    await within(asking, patienceMs);
    // By an error, for kafkajs does not hear of a socket that is only closed, and its timers would go on.
    if (!isAnswering) for (const socket of sockets) socket.destroy(new Error('not answered'));
    await within(admin.disconnect(), DISCONNECT_MS).catch(() => undefined); // nobody waits for it
    return isAnswering;
  }
}

function addressOf({ host, port }: ISocketFactoryArgs): string {
  return `${host}:${port}`;
}

/** As kafkajs opens one when it is given no factory. */
const openSocket: ISocketFactory = ({ host, port, ssl, onConnect }) => {
  const serverName = isIP(host) === 0 ? { servername: host } : {};
  // The types leave out what kafkajs gives where TLS is off.
  const options = ssl as typeof ssl | null;
  const socket = options
    ? connectTls({ host, port, ...serverName, ...options }, onConnect)
    : connectTcp({ host, port }, onConnect);
  return socket.setKeepAlive(true, KEEP_ALIVE_MS);
};
