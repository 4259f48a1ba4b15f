import { connect as connectTcp, isIP, type Socket } from 'node:net';
import { connect as connectTls } from 'node:tls';
import { Logger } from '@nestjs/common';
import type { ISocketFactory, ISocketFactoryArgs, KafkaConfig } from 'kafkajs';
import { askBroker, type Answer } from './broker-question.js';

const TICK_MS = 500;
/** Without an answer, before the broker is asked. A join may wait for its answer as long as the slowest member takes. */
const SUSPICIOUS_MS = 2000;
/** Between questions to a broker that has answered one while it owed another answer: doubled each time. */
const LONGEST_PAUSE_MS = 10_000;
/** Nobody has wanted to connect to it for so long: it may be gone for good. */
const FORGET_MS = 60_000;
const KEEP_ALIVE_MS = 60_000;

interface Connection {
  readonly socket: Socket;
  readonly broker: ISocketFactoryArgs;
  /** How much had been written when something was last read. */
  answered: number;
  /** Something written is waiting for its answer. */
  waitingSince: number | undefined;
}

/** What is known of a broker beyond its connections. */
interface Suspect {
  readonly broker: ISocketFactoryArgs;
  isAsked: boolean;
  pauseMs: number;
  askAgainAt: number;
  /** Questions in a row whose connection did not come about. */
  unreached: number;
  isSilent: boolean;
  wantedAt: number;
}

/**
 * Brokers that take connections and answer nothing: frozen ones, and those behind a network that swallows. kafkajs waits for each request that it sent there,
 * a join for more than the rebalance timeout, while the cluster has chosen others long ago. So, for all clients that use this socket factory:
 * - who owes an answer for seconds is asked something small on a connection of its own;
 * - if that is not answered either, connections to it are cut, and kafkajs goes on as if the broker had died;
 * - until it answers again, new connections to it are refused.
 * A broker that refuses, or a login that fails, is no silence: kafkajs hears of those itself.
 */
export class SilentBrokers {
  readonly #logger = new Logger('IdempotentKafkaServer');
  readonly #open: ISocketFactory;
  readonly #connections = new Set<Connection>();
  readonly #suspects = new Map<string, Suspect>();
  #timer: NodeJS.Timeout | undefined;

  constructor(private readonly config: KafkaConfig) {
    this.#open = config.socketFactory ?? openSocket;
  }

  /** Those that are known to be silent last. */
  inOrder(addresses: readonly string[]): string[] {
    const isSilent = (address: string) => this.#suspects.get(address)?.isSilent === true;
    return [...addresses.filter((address) => !isSilent(address)), ...addresses.filter(isSilent)];
  }

  readonly socketFactory: ISocketFactory = (broker) => {
    const address = addressOf(broker);
    const suspect = this.#suspects.get(address);
    if (suspect?.isSilent === true) {
      suspect.wantedAt = performance.now();
      throw new Error(`${address} takes connections and does not answer`);
    }
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
    const owing = new Map<string, ISocketFactoryArgs>();
    for (const connection of this.#connections) {
      if (connection.socket.bytesWritten === connection.answered) continue;
      connection.waitingSince ??= now;
      if (now - connection.waitingSince >= SUSPICIOUS_MS) owing.set(addressOf(connection.broker), connection.broker);
    }
    for (const [address, broker] of owing) this.#suspect(address, broker, now);
    for (const [address, suspect] of this.#suspects) {
      const isOver = suspect.isSilent ? now - suspect.wantedAt > FORGET_MS : !owing.has(address);
      if (suspect.isAsked || (!isOver && now < suspect.askAgainAt)) continue;
      if (isOver) this.#suspects.delete(address);
      else void this.#ask(address, suspect);
    }
  }

  #suspect(address: string, broker: ISocketFactoryArgs, now: number): void {
    if (this.#suspects.has(address)) return;
    this.#suspects.set(address, {
      broker,
      isAsked: false,
      pauseMs: SUSPICIOUS_MS,
      askAgainAt: now,
      unreached: 0,
      isSilent: false,
      wantedAt: now,
    });
  }

  /** Nobody uses these brokers any more; what was known of them will be old when somebody does. */
  #rest(): void {
    clearInterval(this.#timer);
    this.#timer = undefined;
    this.#suspects.clear();
  }

  async #ask(address: string, suspect: Suspect): Promise<void> {
    const asked = performance.now();
    suspect.isAsked = true;
    const answer = await askBroker(suspect.broker, this.config, this.#open);
    suspect.isAsked = false;
    suspect.askAgainAt = performance.now();
    this.#judge(address, suspect, answer, asked);
  }

  #judge(address: string, suspect: Suspect, answer: Answer, asked: number): void {
    suspect.unreached = answer === 'unreached' ? suspect.unreached + 1 : 0;
    if (answer === 'silence' || suspect.unreached > 1) return this.#cut(address, suspect, asked);
    if (answer === 'unreached') return; // once may be a busy moment
    if (suspect.isSilent) this.#logger.log(`Broker ${address} is heard of again`);
    suspect.isSilent = false;
    suspect.askAgainAt += suspect.pauseMs;
    suspect.pauseMs = Math.min(2 * suspect.pauseMs, LONGEST_PAUSE_MS);
  }

  /** Those that were waiting before it was asked. */
  #cut(address: string, suspect: Suspect, asked: number): void {
    const waiting = [...this.#connections].filter(
      ({ broker, waitingSince }) => addressOf(broker) === address && (waitingSince ?? asked) < asked,
    );
    if (waiting.length === 0 && !suspect.isSilent) return; // what it owed has come meanwhile
    if (!suspect.isSilent)
      this.#logger.warn(
        `Broker ${address} takes connections and does not answer: connections to it are cut, and refused until it does`,
      );
    suspect.isSilent = true;
    suspect.askAgainAt += TICK_MS;
    for (const { socket } of waiting) socket.destroy(new Error(`${address} does not answer`));
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
